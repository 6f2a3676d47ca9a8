// SPDX-License-Identifier: Apache-2.0
#include "robot/server/listener.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "robot/server/connection.hpp"

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

}  // namespace

Listener::Listener(ServerContext& context, const tcp::endpoint& endpoint)
    : context_(context),
      acceptor_(context.io, endpoint, true),
      protocol_(endpoint.protocol()),
      waiting_(std::make_shared<bool>(false)) {
  acceptor_.native_non_blocking(true);
  open_reserve();
}

Listener::~Listener() {
  if (reserve_ >= 0) ::close(reserve_);
}

uint16_t Listener::port() const noexcept {
  error_code ignored;
  return acceptor_.local_endpoint(ignored).port();
}

void Listener::tend(ServerClock::time_point now) noexcept {
  if (!acceptor_.is_open() || *waiting_) return;
  if (now < paused_until_) return context_.note_due(paused_until_);
  if (reserve_ < 0) open_reserve();
  try {
    acceptor_.async_wait(tcp::acceptor::wait_read,
                         [this, waiting = Waiting(waiting_)](error_code error) {
                           if (!error) accept_all();
                         });
  } catch (...) {
    pause();
  }
}

void Listener::close() noexcept {
  error_code ignored;
  acceptor_.close(ignored);
}

// The loop's next tend() waits for the rest.
void Listener::accept_all() {
  for (int i = 0; i < kBatch && acceptor_.is_open(); ++i) {
    tcp::endpoint from;
    auto length = static_cast<socklen_t>(from.capacity());
    const int descriptor =
        accept4(acceptor_.native_handle(), from.data(), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) {
      from.resize(length);
      admit(descriptor, from.address());
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno == EMFILE || errno == ENFILE) {
      if (!is_pending()) return;
      if (!displace_guest()) return refuse_with_reserve();
    } else if (errno != ECONNABORTED && errno != EPROTO && errno != EINTR) {
      return pause();
    }  // else that one connection is gone
  }
}

// Without a free descriptor accept4() fails, whether or not there is something to accept.
bool Listener::is_pending() noexcept {
  pollfd poll_for{acceptor_.native_handle(), POLLIN, 0};
  return ::poll(&poll_for, 1, 0) == 1;
}

void Listener::pause() noexcept {
  ++context_.counters.accept_failures;
  paused_until_ = ServerClock::now() + kPause;
}

void Listener::admit(int descriptor, const asio::ip::address& address) {
  try {
    if (context_.connections.open() >= context_.options.max_connections) displace_guest();
    tcp::socket socket(context_.io);
    socket.assign(protocol_, descriptor);
    descriptor = -1;  // the socket's now
    Connection::start(context_, std::move(socket), address);
  } catch (...) {
    if (descriptor >= 0) ::close(descriptor);
    pause();
  }
}

bool Listener::displace_guest() {
  Connection* guest = context_.connections.oldest_guest();
  if (!guest) return false;
  guest->displace();
  return true;
}

void Listener::refuse_with_reserve() {
  pause();
  if (reserve_ < 0) return;
  ::close(std::exchange(reserve_, -1));
  const int descriptor =
      accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (descriptor >= 0) {
    (void)!::send(descriptor, kRefusal.data(), kRefusal.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    ::close(descriptor);
    ++context_.counters.refused;
  }
  open_reserve();
}

void Listener::open_reserve() noexcept {
  reserve_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

}  // namespace frt::host
