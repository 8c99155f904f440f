// SPDX-License-Identifier: Apache-2.0
// A client of the tests that sends exactly the bytes it is told to, over a real socket.
#pragma once

#include <string>
#include <string_view>

namespace inflight::http_listener {

struct TestResponse {
  int status = 0;      // 0 = the connection ended without an answer
  std::string head;    // status line and headers
  std::string body;    // without chunk framing
  int num_chunks = 0;  // non-empty ones
  bool complete = false;

  // The value of a header, "" when there is none.
  std::string Header(std::string_view name) const;
};

// Blocking, with a time-out of ten seconds in each read, after which the test fails rather than
// hangs.
class TestClient {
 public:
  explicit TestClient(int port, const char* from = "127.0.0.1");
  ~TestClient();
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  bool Send(std::string_view bytes);
  // The next answer on this connection. `to_head` = its request was HEAD, so no body follows.
  TestResponse Receive(bool to_head = false);
  TestResponse Ask(std::string_view request);  // Send, Receive
  // Up to the next chunk of a stream whose head Receive(true) has taken; "" at its end.
  std::string ReceiveChunk();
  bool IsClosedByServer();  // waits for the end
  void Close();
  void Reset();  // closes so that the server sees an error, not an end

 private:
  bool Fill();  // reads more; false at the end
  std::string TakeLine();
  std::string Take(size_t num_bytes);

  int fd_ = -1;
  std::string received_;
};

// "POST <target>" with a Content-Length.
std::string Post(std::string_view target, std::string_view body, std::string_view headers = "");
std::string Get(std::string_view target);

// One request on a connection of its own.
TestResponse RoundTrip(int port, std::string_view request);

}  // namespace inflight::http_listener
