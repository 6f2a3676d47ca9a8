// SPDX-License-Identifier: Apache-2.0
#include "robot/service/context.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "net/guests.hpp"
#include "robot/service/connection.hpp"

namespace frt::host {

// ---- exchange --------------------------------------------------------------------------------

// A connection has one job under way; one that has gone may leave one behind, with the handler.
Exchange::Exchange(std::size_t clients) {
  jobs_.reserve(clients + 1);
  answers_.reserve(2 * clients + 2);
}

void Exchange::push(Job job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_one();
}

void Exchange::withdraw(uint64_t connection) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [&](const Job& job) { return job.connection == connection; });
}

std::optional<Job> Exchange::wait_for_job(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [&] { return !jobs_.empty(); });
  if (jobs_.empty()) return std::nullopt;
  std::optional<Job> job(std::move(jobs_.front()));
  jobs_.erase(jobs_.begin());
  return job;
}

void Exchange::push(Answer answer) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    answers_.push_back(std::move(answer));
  } catch (const std::bad_alloc&) {
    return;
  }
}

std::optional<Answer> Exchange::take_answer() {
  const std::lock_guard lock(mutex_);
  if (answers_.empty()) return std::nullopt;
  std::optional<Answer> answer(std::move(answers_.front()));
  answers_.erase(answers_.begin());
  return answer;
}

// ---- connections -----------------------------------------------------------------------------

void ConnectionTable::remove(const Connection& connection) noexcept {
  std::erase(all_, &connection);
}

Connection* ConnectionTable::find(uint64_t id) const noexcept {
  for (Connection* connection : all_) {
    if (connection->id() == id) return connection;
  }
  return nullptr;
}

uint32_t ConnectionTable::clients_of(const boost::asio::ip::address& address) const noexcept {
  return static_cast<uint32_t>(std::ranges::count_if(all_, [&](const Connection* connection) {
    return connection->is_client() && connection->address() == address;
  }));
}

uint32_t ConnectionTable::open() const noexcept {
  return static_cast<uint32_t>(
      std::ranges::count_if(all_, [](const Connection* c) { return c->has_socket(); }));
}

Connection* ConnectionTable::oldest_guest() const {
  return host::oldest_guest(all_, [](const Connection& connection) {
    return !connection.is_client() && connection.has_socket();
  });
}

Connection* ConnectionTable::largest_unfinished() const noexcept {
  Connection* largest = nullptr;
  for (Connection* connection : all_) {
    if (connection->unfinished() > (largest ? largest->unfinished() : 0)) largest = connection;
  }
  return largest;
}

Connection* ConnectionTable::longest_resting(
    ServerClock::time_point before, const boost::asio::ip::address* address) const noexcept {
  Connection* longest = nullptr;
  for (Connection* connection : all_) {
    if (!connection->is_client() || (address && connection->address() != *address)) continue;
    if (connection->idle_since() >= (longest ? longest->idle_since() : before)) continue;
    longest = connection;
  }
  return longest;
}

// ---- context ---------------------------------------------------------------------------------

ServerContext::ServerContext(ServerOptions given, PolicyServer::Metrics lines)
    : options(std::move(given)),
      metrics(std::move(lines)),
      memory(options.buffer_memory),
      exchange(options.max_clients) {}

uint32_t ServerContext::most_clients_of(const boost::asio::ip::address& address) const noexcept {
  const uint32_t all = options.max_clients;
  const uint32_t unasked = address.is_loopback() ? all : (all + 1) / 2;
  const uint32_t most = options.max_clients_per_address.value_or(unasked);
  return most > 0 ? most : all;
}

namespace {

std::string metric(const char* name, const char* type, uint64_t value) {
  return std::string("# TYPE frt_robot_") + name + " " + type + "\nfrt_robot_" + name + " " +
         std::to_string(value) + "\n";
}

}  // namespace

std::string metrics_text(const ServerContext& context) {
  return metric("open_connections", "gauge", context.connections.open()) +
         shared_metrics_text(context);
}

std::string shared_metrics_text(const ServerContext& context) {
  std::string out;
  const auto line = [&](const char* name, const char* type, uint64_t value) {
    out += metric(name, type, value);
  };
  const ServerCounters& counters = context.counters;
  line("clients", "gauge", counters.clients);
  line("buffer_bytes", "gauge", context.memory.used());
  line("connections_total", "counter", counters.connections);
  line("refused_total", "counter", counters.refused);
  line("requests_total", "counter", counters.requests);
  line("replies_total", "counter", counters.replies);
  line("errors_total", "counter", counters.errors);
  line("deadline_miss_total", "counter", counters.deadline_misses);
  line("slow_client_total", "counter", counters.slow_clients);
  line("handshake_timeout_total", "counter", counters.handshake_timeouts);
  line("receive_timeout_total", "counter", counters.receive_timeouts);
  line("silent_client_total", "counter", counters.silent);
  line("idle_client_total", "counter", counters.idle);
  line("out_of_memory_total", "counter", counters.out_of_memory);
  line("displaced_total", "counter", counters.displaced);
  line("accept_failure_total", "counter", counters.accept_failures);
  MetricsText times;
  context.times.wait.write(times, "frt_robot_wait_seconds",
                           "From a request's last byte until it is handled.");
  context.times.inference.write(times, "frt_robot_inference_seconds",
                                "From the submission of an inference to its actions.");
  context.times.request.write(times, "frt_robot_request_seconds",
                              "From a request's last byte until its reply is made.");
  out += times.take();
  if (context.metrics) out += context.metrics();
  return out;
}

}  // namespace frt::host
