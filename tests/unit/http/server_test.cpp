// SPDX-License-Identifier: Apache-2.0
// The HTTP server with a service of its own: what clients read, and what the service hears.
#include "http/server.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <frt/error.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "http/body_sink.hpp"
#include "http/file_stream.hpp"
#include "peer.hpp"

namespace {

using namespace std::chrono_literals;
using namespace frt::host;
using frt::test::Peer;

// /echo answers with the body, /sink drops it as it comes, /stream begins and hands the exchange
// out, /drop forgets it, /no is refused before its body.
struct TestService : HttpService {
  struct Sink : BodySink {
    uint64_t limit() const noexcept override { return 1000; }
    void start(std::function<void()>) override {}
    bool put(std::string_view) override { return true; }
    std::optional<HttpResponse> refusal() override { return std::nullopt; }
  };
  std::optional<HttpResponse> admit(HttpRequest& head) override {
    if (head.path == "/sink") {
      head.sink = std::make_shared<Sink>();
      ++sinks;
      notify();
    }
    if (head.path != "/no") return std::nullopt;
    return HttpResponse{.status = 404, .content_type = "text/plain", .body = "no"};
  }
  void handle(std::shared_ptr<Exchange> exchange) override {
    const std::string path = exchange->request().path;
    if (path == "/drop") return;
    if (path == "/echo" || path == "/sink") {
      return exchange->respond({.content_type = "text/plain", .body = exchange->take_body()});
    }
    exchange->on_gone([this] {
      ++gone;
      notify();
    });
    exchange->on_idle([this] { ++idle; });
    HttpResponse head{.content_type = "text/event-stream"};
    if (path == "/long") head.length = 5;
    exchange->begin(std::move(head));
    const std::lock_guard lock(mutex);
    streams.push_back(std::move(exchange));
    changed.notify_all();
  }
  HttpResponse error_response(const HttpRequest& request, int status,
                              const std::string& text) override {
    return {.status = status, .body = "{\"" + request.path + "\":\"" + text + "\"}"};
  }
  HttpHeaders standard_headers(const HttpRequest&) override { return {{"X-Test", "a\r\nb"}}; }
  void finished(const HttpOutcome& outcome) noexcept override {
    const std::lock_guard lock(mutex);
    endings.push_back(outcome.request.path + " " + outcome.ending);
    changed.notify_all();
  }
  void notify() {
    const std::lock_guard lock(mutex);
    changed.notify_all();
  }
  template <class Condition>
  bool wait(const Condition& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, condition);
  }
  std::shared_ptr<Exchange> stream() {
    REQUIRE(wait([&] { return !streams.empty(); }));
    const std::lock_guard lock(mutex);
    return streams.back();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Exchange>> streams;
  std::vector<std::string> endings;
  std::atomic<int> gone{0}, idle{0}, sinks{0};
};

HttpOptions local(HttpOptions options = {}) {
  options.listen = "127.0.0.1:0";
  return options;
}

std::string post(const std::string& path, const std::string& body, const char* extra = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + extra + "\r\n" + body;
}

std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

uint64_t refusals(const HttpServer& server, HttpRefusal refusal) {
  return server.counters().refusals[static_cast<std::size_t>(refusal)];
}

constexpr const char* kClose = "Connection: close\r\n";

}  // namespace

TEST_CASE("requests of a pipeline are answered in order on one connection") {
  TestService service;
  const HttpServer server(local(), service);
  Peer peer(server, post("/echo", "one") + post("/no", "") + post("/echo", "two") +
                        post("/echo", "three", kClose));
  const std::string& got = peer.read_all();
  CHECK(count_of(got, "HTTP/1.1 200 OK\r\n") == 3);
  CHECK(got.find("\r\n\r\none") < got.find("404 Not Found"));
  CHECK(got.find("404 Not Found") < got.find("\r\n\r\ntwo"));
  CHECK(got.ends_with("Connection: close\r\nX-Test: a  b\r\n\r\nthree"));
  CHECK(server.counters().connections == 1);
  CHECK(server.counters().requests == 4);
  CHECK(server.buffered() == 0);
}

TEST_CASE("a request that comes while the one before is answered begins with its own bytes") {
  TestService service;
  const HttpServer server(local(), service);
  Peer peer(server, post("/echo", "one") + post("/echo", "two"));
  CHECK(peer.read_until("two"));
  peer.send(post("/no", "", kClose));
  const std::string& got = peer.read_all();
  CHECK(count_of(got, "HTTP/1.1 ") == 3);
  CHECK(count_of(got, "404 Not Found") == 1);
  CHECK(server.counters().requests == 3);
}

TEST_CASE("a body comes in chunks, byte by byte, or behind 100 Continue") {
  TestService service;
  const HttpServer server(local(), service);
  const std::string chunked =
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
      "3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nTrailer: x\r\n\r\n";
  Peer slow(server, "");
  for (const char c : chunked) slow.send({&c, 1});
  CHECK(slow.read_all().ends_with("\r\n\r\nabcdefg"));
  // A body of no bytes has its last chunk first.
  Peer empty(server, chunked.substr(0, chunked.find("3\r\nabc")));
  for (const char c : std::string_view("0\r\n\r\n")) empty.send({&c, 1});
  CHECK(empty.read_all().ends_with("\r\n\r\n"));
  Peer careful(server,
               "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
               "Connection: close\r\n\r\n");
  CHECK(careful.read_until("100 Continue\r\n\r\n"));
  careful.send("ok");
  CHECK(careful.read_all().ends_with("\r\n\r\nok"));
}

TEST_CASE("what the server itself refuses is told in the service's words") {
  TestService service;
  const HttpServer server(local({.max_body = 1000, .max_head = 1024, .max_connections = 1}),
                          service);
  const auto answer = [&](const std::string& bytes) {
    Peer peer(server, bytes);
    return peer.read_all();
  };
  const std::string large = answer("POST /echo HTTP/1.1\r\nContent-Length: 1001\r\n\r\n");
  CHECK(large.starts_with("HTTP/1.1 413 "));
  CHECK(large.find("Content-Type: application/json\r\n") != large.npos);
  CHECK(large.ends_with("{\"/echo\":\"the request's body is too large\"}"));
  CHECK(answer("hello\r\n\r\n").ends_with("{\"\":\"the request is not well-formed HTTP/1.1\"}"));
  CHECK(answer("GET /drop HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .ends_with("{\"/drop\":\"the request was not answered\"}"));
  Peer streaming(server, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  service.stream();
  const std::string full = answer(post("/echo", "x"));
  CHECK(full.find("Content-Type: application/json\r\n") != full.npos);
  CHECK(full.ends_with("{\"\":\"the server has as many connections as it may\"}"));
}

TEST_CASE("what is no request, or too large for one, is refused and counted") {
  TestService service;
  const HttpServer server(local({.max_body = 1000, .max_head = 1024}), service);
  const auto answer = [&](const std::string& bytes) {
    Peer peer(server, bytes);
    return peer.read_all().substr(0, 12);
  };
  CHECK(answer("hello\r\n\r\n") == "HTTP/1.1 400");
  CHECK(answer("GET / HTTP/9.9\r\n\r\n") == "HTTP/1.1 400");
  CHECK(answer("POST /echo HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n") ==
        "HTTP/1.1 400");
  CHECK(answer("POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n") == "HTTP/1.1 400");
  CHECK(answer("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n") ==
        "HTTP/1.1 400");
  // Whoever forwards requests might see another end of these.
  const std::string post = "POST /echo HTTP/1.1\r\nHost: x\r\n";
  CHECK(answer(post + "Transfer-Encoding: xchunked\r\n\r\n") == "HTTP/1.1 400");
  CHECK(answer(post + "Transfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok") == "HTTP/1.1 400");
  CHECK(answer(post + "Host: y\r\nContent-Length: 0\r\n\r\n") == "HTTP/1.1 400");
  CHECK(refusals(server, HttpRefusal::kMalformed) == 8);
  CHECK(answer("GET / HTTP/1.1\r\nX: " + std::string(5000, 'x')) == "HTTP/1.1 431");
  CHECK(answer(std::string(100000, 'x')) == "HTTP/1.1 431");
  CHECK(refusals(server, HttpRefusal::kHeadTooLarge) == 2);
  CHECK(answer("POST /echo HTTP/1.1\r\nContent-Length: 1001\r\n\r\n") == "HTTP/1.1 413");
  CHECK(answer("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
               std::string(1001, 'x')) == "HTTP/1.1 413");
  // A bomb of chunks, each with a long extension.
  std::string bomb = "POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;";
  CHECK(answer(bomb + std::string(100000, 'x')).starts_with("HTTP/1.1 4"));
  CHECK(refusals(server, HttpRefusal::kBodyTooLarge) == 2);
  CHECK(server.buffered() == 0);
}

TEST_CASE("bodies of all connections share one budget, and a claimed length costs nothing") {
  TestService service;
  const HttpServer server(local({.max_body = 1 << 20, .buffer_memory = 1 << 20}), service);
  Peer claims(server, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  Peer holds(server, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" +
                         std::string(600000, 'x'));
  while (server.buffered() < 600000) std::this_thread::sleep_for(1ms);
  Peer refused(server, post("/echo", std::string(600000, 'y')));
  CHECK(refused.read_all().starts_with("HTTP/1.1 503"));
  CHECK(refusals(server, HttpRefusal::kMemory) == 1);
  holds.close();
  while (server.buffered() > 0) std::this_thread::sleep_for(1ms);
  Peer fits(server, post("/echo", std::string(600000, 'z'), kClose));
  CHECK(fits.read_all().ends_with("zzz"));
}

TEST_CASE("a stream arrives piece by piece, in chunks, and the connection lives on") {
  TestService service;
  const HttpServer server(local(), service);
  Peer peer(server, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = service.stream();
  CHECK(exchange->write("data: 1\n\n"));
  CHECK(peer.read_until("9\r\ndata: 1\n\n\r\n"));
  CHECK(peer.got.find("Transfer-Encoding: chunked") != peer.got.npos);
  CHECK(exchange->write("data: 2\n\n"));
  exchange->end();
  CHECK_FALSE(exchange->write("late"));
  CHECK(peer.read_until("data: 2\n\n\r\n0\r\n\r\n"));
  peer.send(post("/echo", "more", kClose));
  CHECK(peer.read_all().ends_with("\r\n\r\nmore"));
  CHECK(service.gone == 0);
}

TEST_CASE("a client of HTTP/1.0 reads a stream up to its end") {
  TestService service;
  const HttpServer server(local(), service);
  Peer peer(server, "GET /stream HTTP/1.0\r\nHost: x\r\n\r\n");
  const auto exchange = service.stream();
  exchange->write("data: 1\n\n");
  exchange->end();
  CHECK(peer.read_all().ends_with("\r\n\r\ndata: 1\n\n"));
}

TEST_CASE("a client that leaves ends its exchange, before and within the answer") {
  TestService service;
  const HttpServer server(local(), service);
  {
    Peer peer(server, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    service.stream()->write("data: 1\n\n");
    CHECK(peer.read_until("data: 1"));
  }
  CHECK(service.wait([&] { return service.gone == 1; }));
  CHECK(service.stream()->gone());
  CHECK_FALSE(service.stream()->write("more"));
  CHECK(service.wait([&] { return service.endings.size() == 1; }));
  CHECK(service.endings[0] == "/stream client left");
  CHECK(server.counters().disconnects == 1);
  CHECK(server.counters().streams == 0);
}

TEST_CASE("a client whose pipeline fills the buffer is noticed when it leaves") {
  TestService service;
  const HttpServer server(local(), service);
  {
    std::string pipeline = "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n";
    while (pipeline.size() < 100000) pipeline += post("/echo", std::string(1000, 'x'));
    Peer peer(server, pipeline);
    service.stream()->write("data: 1\n\n");
    CHECK(peer.read_until("data: 1"));
  }
  CHECK(service.wait([&] { return service.gone == 1; }));
  CHECK(service.wait([&] { return service.endings.size() == 1; }));
  CHECK(service.endings[0] == "/stream client left");
}

TEST_CASE("a client that does not read is cut off when the stream's buffer is full") {
  TestService service;
  const HttpServer server(local({.stream_buffer = 1 << 20}), service);
  Peer peer(server, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n", 4096);
  const auto exchange = service.stream();
  const std::string piece(10000, 'x');
  std::size_t written = 0;
  while (exchange->write(piece)) written += piece.size();
  CHECK(service.wait([&] { return service.gone == 1; }));
  CHECK(refusals(server, HttpRefusal::kSlowClient) == 1);
  CHECK(written < (std::size_t{16} << 20));  // the limit, and what sockets hold
  CHECK(service.wait([&] { return !service.endings.empty(); }));
  CHECK(service.endings[0] == "/stream slow client");
}

TEST_CASE("a file is sent as fast as its client reads, and is let go of when the client leaves") {
  struct FileService : TestService {
    void handle(std::shared_ptr<Exchange> exchange) override {
      frt::io::Descriptor copy(::dup(fileno(file.get())));
      ::lseek(copy.get(), 0, SEEK_SET);
      FileStream::start(exchange, {.content_type = "text/plain"}, std::move(copy), workers);
    }
    std::optional<HttpResponse> admit(HttpRequest& head) override {
      auto token = std::make_shared<int>();
      held = token;
      head.held = std::move(token);
      return std::nullopt;
    }
    std::unique_ptr<FILE, int (*)(FILE*)> file{std::tmpfile(), &std::fclose};
    std::weak_ptr<int> held;
    Workers workers{1, 1};
  } service;
  std::string content;
  while (content.size() < (3 << 20)) content += std::to_string(content.size()) + " ";
  REQUIRE(std::fwrite(content.data(), 1, content.size(), service.file.get()) == content.size());
  REQUIRE(std::fflush(service.file.get()) == 0);
  const HttpServer server(local({.stream_buffer = 64 << 10}), service);
  Peer peer(server, "GET /file HTTP/1.0\r\nHost: x\r\n\r\n", 4096);
  const std::string answer = peer.read_all();
  const std::size_t head_end = answer.find("\r\n\r\n") + 4;
  CHECK(answer.substr(head_end) == content);
  const std::string length = "Content-Length: " + std::to_string(content.size()) + "\r\n";
  CHECK(answer.substr(0, head_end).find(length) != answer.npos);
  CHECK(refusals(server, HttpRefusal::kSlowClient) == 0);
  Peer looker(server, "HEAD /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string looked = looker.read_all();
  CHECK(looked.ends_with("\r\n\r\n"));
  CHECK(looked.find(length) != looked.npos);
  {
    Peer leaver(server, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n", 4096);
    CHECK(leaver.read());
  }
  CHECK(service.wait([&] { return service.endings.size() == 3; }));
  CHECK(service.endings[2] == "/file client left");
  while (!service.held.expired()) std::this_thread::sleep_for(1ms);
}

TEST_CASE("a stream that is not as long as it said ends its connection") {
  TestService service;
  const HttpServer server(local(), service);
  Peer peer(server, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = service.stream();
  exchange->write("abc");
  REQUIRE(peer.read_until("abc"));
  exchange->end();
  const std::string got = peer.read_all();  // no more of it comes
  CHECK(got.find("Content-Length: 5\r\n") != got.npos);
  CHECK(got.find("Transfer-Encoding") == got.npos);
  CHECK(server.counters().failures == 1);
}

TEST_CASE("a silent stream is told so, again and again") {
  TestService service;
  const HttpServer server(local({.heartbeat = 20ms}), service);
  Peer peer(server, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = service.stream();
  while (service.idle < 3) std::this_thread::sleep_for(1ms);
  exchange->end();
  CHECK(peer.read_until("0\r\n\r\n"));
}

TEST_CASE("an exchange that nobody answers is answered with 500") {
  TestService service;
  const HttpServer server(local(), service);
  Peer peer(server, "GET /drop HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  CHECK(peer.read_all().starts_with("HTTP/1.1 500 "));
  CHECK(server.counters().failures == 1);
}

TEST_CASE("heads, bodies and idle connections end in time") {
  TestService service;
  const HttpServer server(local({.head_timeout = 50ms}), service);
  Peer silent(server, ""), head(server, "GET / HT");
  CHECK(silent.read_all().starts_with("HTTP/1.1 408 "));
  CHECK(head.read_all().starts_with("HTTP/1.1 408 "));
  CHECK(refusals(server, HttpRefusal::kHeadTimeout) == 2);

  // Whose head comes late, when this thread is slow, must not be refused for that.
  const HttpServer patient(local({.body_timeout = 50ms, .idle_timeout = 50ms}), service);
  Peer body(patient, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab"),
      idle(patient, post("/echo", "x"));
  CHECK(body.read_all().starts_with("HTTP/1.1 408 "));
  CHECK(idle.read_all().ends_with("\r\n\r\nx"));
  CHECK(refusals(patient, HttpRefusal::kHeadTimeout) == 0);
  CHECK(refusals(patient, HttpRefusal::kBodyTimeout) == 1);
}

TEST_CASE("half-open connections give their places to newcomers, streams and uploads never do") {
  TestService service;
  const HttpServer server(local({.max_connections = 8}), service);
  Peer streaming(server, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = service.stream();
  const std::string upload = post("/sink", std::string(100, 'x'), kClose);
  Peer uploading(server, upload.substr(0, upload.size() - 1));
  REQUIRE(service.wait([&] { return service.sinks == 1; }));
  std::vector<std::unique_ptr<Peer>> half_open;
  for (int i = 0; i < 50; ++i) half_open.push_back(std::make_unique<Peer>(server, "GET "));
  Peer good(server, post("/echo", "served", kClose));
  CHECK(good.read_all().ends_with("served"));
  CHECK(refusals(server, HttpRefusal::kDisplaced) >= 40);
  exchange->write("still here");
  CHECK(streaming.read_until("still here"));
  uploading.send(upload.substr(upload.size() - 1));
  CHECK(uploading.read_all().starts_with("HTTP/1.1 200 "));
}

TEST_CASE("a server whose places are all busy refuses a newcomer at once") {
  TestService service;
  const HttpServer server(local({.max_connections = 1}), service);
  Peer streaming(server, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  service.stream();
  Peer late(server, post("/echo", "x"));
  CHECK(late.read_all().starts_with("HTTP/1.1 503 "));
  CHECK(refusals(server, HttpRefusal::kConnections) == 1);
}

TEST_CASE("a drain lets answers end, refuses new requests and waits no longer than it may") {
  TestService service;
  HttpServer server(local(), service);
  Peer idle(server, post("/echo", "x"));
  REQUIRE(idle.read_until("\r\n\r\nx"));
  Peer begun(server, "GET /echo HTTP/1.1\r\n");
  Peer peer(server, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = service.stream();
  while (server.counters().connections < 3) std::this_thread::sleep_for(1ms);
  std::thread drain([&] { server.drain(20s); });
  CHECK_FALSE(idle.read());  // closed
  begun.send("Host: x\r\n\r\n");
  CHECK(begun.read_all().starts_with("HTTP/1.1 503 "));
  exchange->write("last");
  exchange->end();
  drain.join();
  CHECK(peer.read_all().ends_with("last\r\n0\r\n\r\n"));
  CHECK(refusals(server, HttpRefusal::kDraining) == 1);
}

TEST_CASE("what is not answered when a server goes is cut off, and its service hears of it") {
  TestService service;
  {
    HttpServer server(local(), service);
    Peer peer(server, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    service.stream();
    CHECK_FALSE(server.drain(10ms));
  }
  CHECK(service.gone == 1);
  CHECK_FALSE(service.stream()->write("nobody reads this"));
}

TEST_CASE("a UNIX socket serves its owner alone, replaces a dead one and no living one") {
  TestService service;
  const std::string path = "/tmp/frt-http-test-" + std::to_string(getpid()) + ".sock";
  HttpOptions options;
  options.listen = "unix:" + path;
  const int dead = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  path.copy(to.sun_path, sizeof(to.sun_path) - 1);
  REQUIRE(::bind(dead, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
  ::close(dead);
  {
    const HttpServer server(options, service);
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    CHECK_THROWS_AS(HttpServer(options, service), frt::Error);
    const int client = ::socket(AF_UNIX, SOCK_STREAM, 0);
    REQUIRE(::connect(client, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
    const std::string request = post("/echo", "local", kClose);
    REQUIRE(::send(client, request.data(), request.size(), 0) ==
            static_cast<ssize_t>(request.size()));
    std::string got;
    char part[4096];
    for (ssize_t count = 0; (count = ::recv(client, part, sizeof(part), 0)) > 0;) {
      got.append(part, static_cast<std::size_t>(count));
    }
    ::close(client);
    CHECK(got.ends_with("\r\n\r\nlocal"));
  }
  CHECK(::access(path.c_str(), F_OK) != 0);
}
