// SPDX-License-Identifier: Apache-2.0
#include "net/listener.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <cstring>
#include <frt/error.hpp>
#include <string_view>
#include <system_error>
#include <utility>

namespace frt::host {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kPause{100};
// Connections accepted before the others get their turn.
constexpr int kBatch = 32;
constexpr std::string_view kRefusal =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\r\n"
    "the server has no file descriptors left\n";

// Marks a wait as over, also where its handler is destroyed without being called.
class Waiting {
 public:
  explicit Waiting(std::shared_ptr<bool> flag) : flag_(std::move(flag)) { *flag_ = true; }
  ~Waiting() {
    if (flag_) *flag_ = false;
  }
  Waiting(Waiting&&) = default;
  Waiting& operator=(Waiting&&) = delete;

 private:
  std::shared_ptr<bool> flag_;
};

// Closed unless it was released.
class OpenSocket {
 public:
  explicit OpenSocket(int family)
      : fd_(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {}
  ~OpenSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenSocket(const OpenSocket&) = delete;
  OpenSocket& operator=(const OpenSocket&) = delete;
  int get() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& where, const char* advice) {
  const std::string reason = std::generic_category().message(errno);
  throw Error(FRT_ERR_IO, "cannot listen on " + where + ": " + reason + "; " + advice);
}

int listen_on(const tcp::endpoint& endpoint) {
  const std::string where = (endpoint.address().is_v6() ? "[" + endpoint.address().to_string() + "]"
                                                        : endpoint.address().to_string()) +
                            ":" + std::to_string(endpoint.port());
  OpenSocket socket(endpoint.protocol().family());
  const int on = 1;
  if (socket.get() < 0 ||
      setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(socket.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    fail(where, "choose another port");
  }
  return socket.release();
}

sockaddr_un unix_endpoint(const std::string& path) {
  sockaddr_un endpoint{};
  endpoint.sun_family = AF_UNIX;
  std::memcpy(endpoint.sun_path, path.data(), path.size());
  return endpoint;
}

// A socket file whose server has gone refuses connections.
bool is_abandoned(const sockaddr_un& endpoint) {
  struct stat status {};
  if (lstat(endpoint.sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  const OpenSocket probe(AF_UNIX);
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&endpoint), sizeof(endpoint)) !=
             0 &&
         errno == ECONNREFUSED;
}

int listen_on(const std::string& path) {
  const sockaddr_un endpoint = unix_endpoint(path);
  if (is_abandoned(endpoint)) ::unlink(path.c_str());
  OpenSocket socket(AF_UNIX);
  // Nobody can connect before listen(), so the rights are set in time.
  if (socket.get() < 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&endpoint), sizeof(endpoint)) != 0 ||
      ::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    fail("unix:" + path, "choose another path, or end the server that uses it");
  }
  return socket.release();
}

}  // namespace

Listener::Listener(asio::io_context& io, const ListenAddress& address, AcceptingServer& server)
    : server_(server),
      unix_path_(address.unix_path),
      family_(!unix_path_.empty()       ? AF_UNIX
              : address.address.is_v6() ? AF_INET6
                                        : AF_INET),
      socket_(io),
      waiting_(std::make_shared<bool>(false)) {
  if (!unix_path_.empty()) {
    socket_.assign(listen_on(unix_path_));
  } else {
    socket_.assign(listen_on(tcp::endpoint(address.address, address.port)));
    tcp::endpoint bound;
    auto length = static_cast<socklen_t>(bound.capacity());
    getsockname(socket_.native_handle(), bound.data(), &length);
    bound.resize(length);
    port_ = bound.port();
  }
  open_reserve();
}

Listener::~Listener() {
  close();
  if (reserve_ >= 0) ::close(reserve_);
}

void Listener::tend(ServerClock::time_point now) noexcept {
  if (!socket_.is_open() || *waiting_) return;
  if (now < paused_until_) return server_.note_due(paused_until_);
  if (reserve_ < 0) open_reserve();
  try {
    socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                       [this, waiting = Waiting(waiting_)](error_code error) {
                         if (!error) accept_all();
                       });
  } catch (...) {
    pause();
  }
}

void Listener::close() noexcept {
  if (!socket_.is_open()) return;
  error_code ignored;
  socket_.close(ignored);
  if (!unix_path_.empty()) ::unlink(unix_path_.c_str());
}

// The loop's next tend() waits for the rest.
void Listener::accept_all() {
  for (int i = 0; i < kBatch && socket_.is_open(); ++i) {
    tcp::endpoint from;
    auto length = static_cast<socklen_t>(from.capacity());
    const int descriptor =
        accept4(socket_.native_handle(), family_ == AF_UNIX ? nullptr : from.data(),
                family_ == AF_UNIX ? nullptr : &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) {
      if (family_ == AF_UNIX) {
        admit(descriptor, {});
      } else {
        from.resize(length);
        admit(descriptor, from.address());
      }
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno == EMFILE || errno == ENFILE) {
      if (!is_pending()) return;
      if (!server_.displace()) return refuse_with_reserve();
    } else if (errno != ECONNABORTED && errno != EPROTO && errno != EINTR) {
      return pause();
    }  // else that one connection is gone
  }
}

// Without a free descriptor accept4() fails, whether or not there is something to accept.
bool Listener::is_pending() noexcept {
  pollfd poll_for{socket_.native_handle(), POLLIN, 0};
  return ::poll(&poll_for, 1, 0) == 1;
}

void Listener::pause() noexcept {
  server_.accept_failed();
  paused_until_ = ServerClock::now() + kPause;
}

void Listener::admit(int descriptor, const asio::ip::address& address) {
  try {
    if (server_.is_full()) server_.displace();
  } catch (...) {
    ::close(descriptor);
    return pause();
  }
  try {
    server_.admit(descriptor, address);
  } catch (...) {
    pause();
  }
}

void Listener::refuse_with_reserve() {
  pause();
  if (reserve_ < 0) return;
  ::close(std::exchange(reserve_, -1));
  const int descriptor =
      accept4(socket_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (descriptor >= 0) {
    if (server_.is_plain()) {
      (void)!::send(descriptor, kRefusal.data(), kRefusal.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    ::close(descriptor);
    server_.refused();
  }
  open_reserve();
}

void Listener::open_reserve() noexcept {
  reserve_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

}  // namespace frt::host
