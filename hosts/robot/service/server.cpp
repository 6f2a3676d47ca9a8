// SPDX-License-Identifier: Apache-2.0
// The server's own thread runs a loop: what has arrived (Asio), answers, deadlines, the listener.
// It allocates nothing itself, and what throws out of a handler, out of memory included, ends at
// most the connection whose handler it was.
#include "robot/service/server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <frt/error.hpp>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "net/access_log.hpp"
#include "net/listener.hpp"
#include "robot/service/connection.hpp"
#include "robot/service/context.hpp"
#include "robot/service/wire/shown.hpp"

namespace frt::host {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// The loop comes around at least this often, for a wake-up that was lost for want of memory.
constexpr std::chrono::milliseconds kRound{100};
// Handlers that run before answers and deadlines get their turn.
constexpr int kBatch = 64;

[[noreturn]] void refuse(const std::string& text) {
  throw Error(FRT_ERR_INVALID_ARGUMENT, text);
}

// What became of a request, for the log and the histograms.
struct Served {
  const char* ending = "reply";
  double wait_ms = 0, infer_ms = -1;
  std::string error;
};

// What the handler makes of a job; an error's text where it throws.
Answer answer_to(Job& job, const PolicyServer::Handler& handler, std::chrono::milliseconds deadline,
                 Served& served) noexcept {
  Answer answer{job.connection, job.number, std::move(job.bytes), {}, false};
  const double age = milliseconds_since(job.received);
  served.wait_ms = age;
  answer.expired = age >= static_cast<double>(deadline.count());
  if (answer.expired) {
    served.ending = "expired";
    return answer;
  }
  try {
    try {
      PolicyServer::Reply reply = handler({answer.request.bytes(), age, job.previous_total_ms});
      answer.bytes = std::move(reply.bytes);
      served.infer_ms = reply.infer_ms;
      answer.ok = true;
    } catch (const std::bad_alloc&) {
      answer.bytes = "the server is out of memory; send the request again";
    } catch (const std::exception& error) {
      answer.bytes = error.what();
      if (answer.bytes.empty()) answer.bytes = "the request failed";
    }
  } catch (...) {
    answer.bytes.clear();  // not even an error's text: the connection is closed
  }
  if (!answer.ok) {
    served.ending = "error";
  } else if (milliseconds_since(job.received) >= static_cast<double>(deadline.count())) {
    served.ending = "late";
  }
  return answer;
}

}  // namespace

void ServerOptions::check() const {
  parse_listen(listen);
  if (max_message == 0) refuse("max_message = 0 lets nothing in");
  if (buffer_memory / 2 < max_message) {
    refuse("buffer_memory = " + std::to_string(buffer_memory) +
           " is less than two messages of max_message = " + std::to_string(max_message) +
           " bytes; raise the one or lower the other");
  }
  if (max_connections <= max_clients) {
    refuse("max_connections = " + std::to_string(max_connections) + " leaves no room beside " +
           std::to_string(max_clients) + " clients (max_clients) for new ones");
  }
  if (max_clients_per_address.value_or(0) > max_clients) {
    refuse("max_clients_per_address = " + std::to_string(*max_clients_per_address) +
           " has no effect: it is above max_clients = " + std::to_string(max_clients));
  }
}

struct PolicyServer::State : AcceptingServer {
  State(ServerOptions options, Metrics metrics)
      : context(std::move(options), std::move(metrics)),
        log(context.options.request_log),
        listener(context.io, parse_listen(context.options.listen), *this) {}

  bool is_full() const noexcept override {
    return context.connections.open() >= context.options.max_connections;
  }
  bool displace() override {
    Connection* guest = context.connections.oldest_guest();
    if (guest) guest->displace();
    return guest != nullptr;
  }
  void admit(int descriptor, const asio::ip::address& address) override {
    tcp::socket socket(context.io);
    error_code error;
    socket.assign(listener.family() == AF_INET6 ? tcp::v6() : tcp::v4(), descriptor, error);
    if (error) {
      ::close(descriptor);
      throw boost::system::system_error(error);
    }
    Connection::start(context, std::move(socket), address);
  }
  void accept_failed() noexcept override { ++context.counters.accept_failures; }
  void refused() noexcept override { ++context.counters.refused; }
  void note_due(ServerClock::time_point due) noexcept override { context.note_due(due); }

  // Until `stopping`, and then until the last connection is closed.
  void serve() {
    const auto work = asio::make_work_guard(context.io);
    bool closing = false;
    while (!closing || !context.connections.all().empty()) {
      try {
        context.io.run_one_until(std::min(context.next_due, ServerClock::now() + kRound));
        for (int i = 0; i < kBatch && context.io.poll_one() > 0; ++i) {
        }
      } catch (const std::bad_alloc&) {
        ++context.counters.out_of_memory;
      } catch (const std::exception&) {
        ++context.counters.errors;
      }
      while (auto answer = context.exchange.take_answer()) {
        Connection* connection = context.connections.find(answer->connection);
        if (connection) connection->finish(std::move(*answer));
      }
      tend();
      if (stopping && !closing) {
        closing = true;
        listener.close();
        for (Connection* connection : context.connections.all()) connection->go_away();
      }
    }
  }

  void tend() noexcept {
    const ServerClock::time_point now = ServerClock::now();
    if (now >= context.next_due) {
      context.next_due = ServerClock::time_point::max();
      const std::vector<Connection*>& all = context.connections.all();
      for (std::size_t i = 0; i < all.size();) {
        Connection* const connection = all[i];
        {
          const auto hold = connection->shared_from_this();
          if (connection->due() <= now) connection->tend(now);
          context.note_due(connection->due());
        }
        if (i < all.size() && all[i] == connection) ++i;  // else it was the last to hold it
      }
    }
    listener.tend(now);
  }

  // So that the loop comes around now; if there is no memory for it, in its own time.
  void wake() noexcept {
    try {
      asio::post(context.io, [] {});
    } catch (...) {
      return;
    }
  }

  // The handler's thread: one request, from its turn to its record.
  void answer(Job job, const Handler& handler) {
    Served served;
    const uint64_t bytes = job.bytes.size();
    Answer answer = answer_to(job, handler, context.options.deadline, served);
    const double seconds = milliseconds_since(job.received) / 1e3;
    const uint64_t reply_bytes = answer.ok ? answer.bytes.size() : 0;
    if (log.open() && !answer.ok && !answer.expired) note_error(served, answer.bytes);
    context.times.wait.add(served.wait_ms / 1e3);
    if (served.infer_ms >= 0) context.times.inference.add(served.infer_ms / 1e3);
    context.times.request.add(seconds);
    context.exchange.push(std::move(answer));
    wake();
    if (log.open()) record(job, served, bytes, reply_bytes, seconds);
  }

  static void note_error(Served& served, std::string_view text) noexcept {
    try {
      served.error = shown(text, kShownError);
    } catch (...) {
      return;  // the record does without it
    }
  }

  void record(const Job& job, const Served& served, uint64_t bytes, uint64_t reply_bytes,
              double seconds) noexcept {
    try {
      nlohmann::ordered_json line = {
          {"client", job.connection},           {"number", job.number},
          {"address", job.address.to_string()}, {"bytes", bytes},
          {"reply_bytes", reply_bytes},         {"wait_ms", served.wait_ms}};
      if (served.infer_ms >= 0) line["infer_ms"] = served.infer_ms;
      line["seconds"] = seconds;
      line["ending"] = served.ending;
      if (!served.error.empty()) line["error"] = served.error;
      log.write("request", std::move(line));
    } catch (...) {
      return;  // a record is lost
    }
  }

  ServerContext context;
  AccessLog log;
  Listener listener;
  std::thread thread;
  std::atomic<bool> stopping{false};
};

PolicyServer::PolicyServer(ServerOptions options, Metrics metrics) {
  options.check();
  state_ = std::make_unique<State>(std::move(options), std::move(metrics));
}

PolicyServer::~PolicyServer() = default;

uint16_t PolicyServer::port() const noexcept {
  return state_->listener.port();
}

const ServerCounters& PolicyServer::counters() const noexcept {
  return state_->context.counters;
}

std::string PolicyServer::metrics() const {
  return shared_metrics_text(state_->context);
}

void PolicyServer::run(const Handler& handler, const std::function<bool()>& stopped) {
  State& state = *state_;
  state.thread = std::thread([&state] { state.serve(); });
  while (!stopped()) {
    std::optional<Job> job = state.context.exchange.wait_for_job(kRound);
    if (!job) continue;
    state.answer(std::move(*job), handler);
  }
  state.stopping = true;
  state.wake();
  state.thread.join();
}

}  // namespace frt::host
