// SPDX-License-Identifier: Apache-2.0
// The server's own thread runs a loop: what has arrived (Asio), answers, deadlines, the listener.
// It allocates nothing itself, and what throws out of a handler, out of memory included, ends at
// most the connection whose handler it was.
#include "robot/server.hpp"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <frt/error.hpp>
#include <new>
#include <thread>
#include <utility>

#include "robot/server/connection.hpp"
#include "robot/server/context.hpp"
#include "robot/server/listener.hpp"

namespace frt::host {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// The loop comes around at least this often, for a wake-up that was lost for want of memory.
constexpr std::chrono::milliseconds kRound{100};
// Handlers that run before answers and deadlines get their turn.
constexpr int kBatch = 64;

tcp::endpoint parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  error_code error;
  unsigned long port = 65536;
  std::string host;
  if (colon != std::string::npos && colon + 1 < text.size()) {
    host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    const std::string digits = text.substr(colon + 1);
    const bool number = digits.size() < 6 && digits.find_first_not_of("0123456789") == digits.npos;
    if (number) port = std::stoul(digits);
  }
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error || port > 65535) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "listen = '" + text + "' is no address:port, e.g. 127.0.0.1:8000 or [::]:8000");
  }
  return {address, static_cast<uint16_t>(port)};
}

[[noreturn]] void refuse(const std::string& text) {
  throw Error(FRT_ERR_INVALID_ARGUMENT, text);
}

// What the handler makes of a job; an error's text where it throws.
Answer answer_to(Job job, const PolicyServer::Handler& handler,
                 std::chrono::milliseconds deadline) noexcept {
  Answer answer{job.connection, job.number, std::move(job.bytes), {}, false};
  const double age = milliseconds_since(job.received);
  answer.expired = age >= static_cast<double>(deadline.count());
  if (answer.expired) return answer;
  try {
    try {
      answer.bytes = handler({answer.request.bytes(), age, job.previous_total_ms});
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
  return answer;
}

}  // namespace

void check_address(const std::string& listen) {
  parse_endpoint(listen);
}

void ServerOptions::check() const {
  check_address(listen);
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

struct PolicyServer::State {
  State(ServerOptions options, Metrics metrics)
      : context(std::move(options), std::move(metrics)),
        listener(context, parse_endpoint(context.options.listen)) {}

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

  ServerContext context;
  Listener listener;
  std::thread thread;
  std::atomic<bool> stopping{false};
};

PolicyServer::PolicyServer(ServerOptions options, Metrics metrics) {
  options.check();
  const std::string listen = options.listen;
  try {
    state_ = std::make_unique<State>(std::move(options), std::move(metrics));
  } catch (const boost::system::system_error& error) {
    throw Error(FRT_ERR_IO, "cannot listen on " + listen + ": " + error.code().message() +
                                "; choose another port");
  }
}

PolicyServer::~PolicyServer() = default;

uint16_t PolicyServer::port() const noexcept {
  return state_->listener.port();
}

const ServerCounters& PolicyServer::counters() const noexcept {
  return state_->context.counters;
}

void PolicyServer::run(const Handler& handler, const std::function<bool()>& stopped) {
  State& state = *state_;
  state.thread = std::thread([&state] { state.serve(); });
  while (!stopped()) {
    std::optional<Job> job = state.context.exchange.wait_for_job(kRound);
    if (!job) continue;
    state.context.exchange.push(
        answer_to(std::move(*job), handler, state.context.options.deadline));
    state.wake();
  }
  state.stopping = true;
  state.wake();
  state.thread.join();
}

}  // namespace frt::host
