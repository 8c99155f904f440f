// SPDX-License-Identifier: Apache-2.0
// A session and a client's end of it, by nghttp2, in one thread: what the one writes the other
// reads.
#include "protocol/grpc_listener/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "protocol/grpc_listener/echo_service.h"

namespace inflight::grpc_listener {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// What came back on a stream.
struct Answer {
  std::map<std::string, std::string> fields;  // of the head and the trailers
  std::string data;
  bool is_closed = false;
  uint32_t error = 0;
};

class Client {
 public:
  Client() {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks,
        [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
           const uint8_t* value, size_t value_size, uint8_t, void* user) {
          static_cast<Client*>(user)
              ->answers[frame->hd.stream_id]
              .fields[std::string(reinterpret_cast<const char*>(name), name_size)] =
              std::string(reinterpret_cast<const char*>(value), value_size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks,
        [](nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t size, void* user) {
          static_cast<Client*>(user)->answers[id].data.append(reinterpret_cast<const char*>(data),
                                                              size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_stream_close_callback(
        callbacks, [](nghttp2_session*, int32_t id, uint32_t error, void* user) {
          auto& answer = static_cast<Client*>(user)->answers[id];
          answer.is_closed = true;
          answer.error = error;
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* user) {
          if (frame->hd.type == NGHTTP2_GOAWAY) {
            static_cast<Client*>(user)->goaway = frame->goaway.error_code;
          }
          return 0;
        });
    nghttp2_session_client_new(&session, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, nullptr, 0);
  }
  ~Client() { nghttp2_session_del(session); }

  using Fields = std::vector<std::pair<std::string, std::string>>;

  // Its id; `data` and then the end of the stream, where `ends`.
  int32_t Call(const std::string& path, std::string data, const Fields& more = {},
               bool ends = true) {
    Fields fields = {{":method", "POST"}, {":scheme", "http"},
                     {":path", path},     {":authority", "a"},
                     {"te", "trailers"},  {"content-type", "application/grpc"}};
    for (const auto& [name, value] : more) {
      const auto same = std::find_if(fields.begin(), fields.end(),
                                     [&](const auto& field) { return field.first == name; });
      same == fields.end() ? fields.emplace_back(name, value).first : same->second = value;
    }
    std::vector<nghttp2_nv> all;
    for (auto& [name, value] : fields) {
      all.push_back({reinterpret_cast<uint8_t*>(name.data()),
                     reinterpret_cast<uint8_t*>(value.data()), name.size(), value.size(), 0});
    }
    sent_.push_back(std::make_unique<Sent>(Sent{std::move(data), 0, ends}));
    const nghttp2_data_provider provider = {
        .source = {.ptr = sent_.back().get()},
        .read_callback = [](nghttp2_session*, int32_t, uint8_t* out, size_t size, uint32_t* flags,
                            nghttp2_data_source* source, void*) -> ssize_t {
          auto& sent = *static_cast<Sent*>(source->ptr);
          const size_t count = std::min(size, sent.data.size() - sent.at);
          std::copy_n(sent.data.data() + sent.at, count, out);
          sent.at += count;
          if (sent.at == sent.data.size() && sent.ends) *flags |= NGHTTP2_DATA_FLAG_EOF;
          if (count == 0 && !sent.ends) return NGHTTP2_ERR_DEFERRED;
          return static_cast<ssize_t>(count);
        }};
    return nghttp2_submit_request(session, nullptr, all.data(), all.size(), &provider, nullptr);
  }

  nghttp2_session* session = nullptr;
  std::map<int32_t, Answer> answers;
  std::optional<uint32_t> goaway;

 private:
  struct Sent {
    std::string data;
    size_t at;
    bool ends;
  };
  std::vector<std::unique_ptr<Sent>> sent_;
};

class SessionTest : public testing::Test {
 protected:
  // What the tests keep is finished, so that calls and their services let go of each other.
  ~SessionTest() override {
    if (session_) session_->Close();
    for (const auto& call : service_.calls) {
      if (call->rpc) call->rpc->Finish({});
    }
  }

  void Start(SessionOptions options = {.max_message_bytes = kMib}) {
    context_.emplace(SessionContext{service_, options, [this](std::function<void()> task) {
                                      elsewhere_.push_back(std::move(task));
                                    }});
    share_ = memory_->NewConnection("c", [] {});
    session_ = std::make_unique<Session>(*context_, thread_, "127.0.0.1", share_, now_);
  }

  // Until both have nothing to say. False: the session asked to be closed.
  bool Exchange() {
    for (bool has_said = true; has_said;) {
      has_said = false;
      const uint8_t* data = nullptr;
      while (const ssize_t count = nghttp2_session_mem_send(client_.session, &data)) {
        has_said = true;
        const std::string_view bytes(reinterpret_cast<const char*>(data),
                                     static_cast<size_t>(count));
        if (!session_->Receive(bytes, now_)) return false;
        session_->TellReactors();
      }
      std::string out;
      if (!session_->Send(out, kMib)) return false;
      if (!out.empty()) {
        has_said = true;
        nghttp2_session_mem_recv(client_.session, reinterpret_cast<const uint8_t*>(out.data()),
                                 out.size());
      }
      session_->OnFlushed();
    }
    return !session_->IsOver();
  }

  Answer& AnswerOf(int32_t id) { return client_.answers[id]; }
  std::string StatusOf(int32_t id) { return AnswerOf(id).fields["grpc-status"]; }

  Session::Time now_{1000h};
  EchoService service_;
  std::vector<std::function<void()>> elsewhere_;  // what was to run on another thread
  std::optional<SessionContext> context_;
  std::shared_ptr<OwnThread> thread_ = std::make_shared<OwnThread>();
  std::shared_ptr<MemoryAccount> memory_ = MemoryAccount::Make(MemoryLimits::Of(8 * kMib));
  std::shared_ptr<AccountShare> share_;
  std::unique_ptr<Session> session_;
  Client client_;
};

TEST_F(SessionTest, MessagesComeBackInTheirOrder) {
  Start();
  const int32_t id = client_.Call("/echo", Framed("one") + Framed("") + Framed("three"));
  EXPECT_TRUE(Exchange());
  EXPECT_EQ(AnswerOf(id).data, Framed("one") + Framed("") + Framed("three"));
  EXPECT_EQ(AnswerOf(id).fields[":status"], "200");
  EXPECT_EQ(AnswerOf(id).fields["content-type"], "application/grpc");
  EXPECT_EQ(StatusOf(id), "0");
  EXPECT_TRUE(AnswerOf(id).is_closed);
  EXPECT_TRUE(service_.calls[0]->is_done);
  EXPECT_FALSE(session_->HasCalls());
}

TEST_F(SessionTest, AMessageLargerThanAllWindowsComesBack) {
  Start();
  nghttp2_session_set_local_window_size(client_.session, 0, 0, 32 << 20);
  const std::string large(kMib, 'x');
  const int32_t id = client_.Call("/hold", Framed(large));
  EXPECT_TRUE(Exchange());
  ASSERT_EQ(service_.calls.size(), 1U);
  EXPECT_TRUE(service_.calls[0]->messages.empty());
  ASSERT_EQ(elsewhere_.size(), 1U);
  elsewhere_[0]();
  ASSERT_EQ(service_.calls[0]->messages, std::vector{large});
  service_.calls[0]->rpc->Finish({}, Framed(large));
  EXPECT_TRUE(Exchange());
  EXPECT_EQ(AnswerOf(id).data, Framed(large));
  EXPECT_EQ(StatusOf(id), "0");
}

TEST_F(SessionTest, AnErrorWithoutMessagesIsTrailersAlone) {
  Start();
  const int32_t id = client_.Call("/hold", Framed("x"));
  EXPECT_TRUE(Exchange());
  service_.calls[0]->rpc->Finish(NotFound("no 'é'\n"));
  EXPECT_TRUE(Exchange());
  EXPECT_EQ(StatusOf(id), "5");
  EXPECT_EQ(AnswerOf(id).fields["grpc-message"], "no '%C3%A9'%0A");
  EXPECT_EQ(AnswerOf(id).data, "");
}

TEST_F(SessionTest, AnAnswerBeforeTheClientHasFinishedEndsTheStream) {
  Start();
  const int32_t id = client_.Call("/hold", Framed("x"), {}, /*ends=*/false);
  EXPECT_TRUE(Exchange());
  service_.calls[0]->rpc->Finish({}, Framed("y"));
  EXPECT_TRUE(Exchange());
  EXPECT_EQ(StatusOf(id), "0");
  EXPECT_TRUE(AnswerOf(id).is_closed);
  EXPECT_EQ(AnswerOf(id).error, NGHTTP2_NO_ERROR);
  EXPECT_TRUE(service_.calls[0]->is_done);
}

TEST_F(SessionTest, ACancelReachesTheServiceWhichStillFinishes) {
  Start();
  const int32_t id = client_.Call("/hold", Framed("x"), {}, /*ends=*/false);
  EXPECT_TRUE(Exchange());
  nghttp2_submit_rst_stream(client_.session, 0, id, NGHTTP2_CANCEL);
  EXPECT_TRUE(Exchange());
  const auto call = service_.calls[0];
  EXPECT_TRUE(call->is_cancelled);
  EXPECT_FALSE(call->is_done);
  call->rpc->Finish({}, Framed("late"));
  EXPECT_TRUE(call->is_done);
  EXPECT_TRUE(Exchange());
  EXPECT_EQ(AnswerOf(id).data, "");
}

TEST_F(SessionTest, ADeadlineEndsACall) {
  Start();
  const int32_t id = client_.Call("/hold", Framed("x"), {{"grpc-timeout", "100m"}});
  EXPECT_TRUE(Exchange());
  EXPECT_EQ(session_->next_deadline(), now_ + 100ms);
  EXPECT_TRUE(session_->OnDue(now_ + 99ms));
  EXPECT_TRUE(Exchange());
  EXPECT_FALSE(AnswerOf(id).is_closed);
  EXPECT_TRUE(session_->OnDue(now_ + 100ms));
  EXPECT_TRUE(Exchange());
  EXPECT_EQ(StatusOf(id), "4");
  EXPECT_TRUE(service_.calls[0]->is_cancelled);
}

TEST_F(SessionTest, HeadsThatAreNoCallsAreRefused) {
  Start();
  const struct {
    std::pair<std::string, std::string> field;
    std::string http, status;
  } cases[] = {
      {{":method", "GET"}, "405", ""},
      {{"content-type", "text/plain"}, "415", ""},
      {{"grpc-encoding", "snappy"}, "200", "12"},
      {{"grpc-timeout", "soon"}, "200", "13"},
      {{"x", std::string(17'000, 'x')}, "200", "8"},
  };
  for (const auto& c : cases) {
    const int32_t id = client_.Call("/echo", Framed("x"), {c.field});
    EXPECT_TRUE(Exchange());
    EXPECT_EQ(AnswerOf(id).fields[":status"], c.http) << c.field.first;
    EXPECT_EQ(StatusOf(id), c.status) << c.field.first;
    EXPECT_TRUE(AnswerOf(id).is_closed);
  }
  EXPECT_TRUE(service_.calls.empty());
}

TEST_F(SessionTest, AMessageOverTheLimitEndsItsCallAlone) {
  Start();
  const int32_t large = client_.Call("/hold", Framed(std::string(kMib + 1, 'x')));
  const int32_t small = client_.Call("/echo", Framed("x"));
  EXPECT_TRUE(Exchange());
  EXPECT_EQ(StatusOf(large), "8");
  EXPECT_THAT(AnswerOf(large).fields["grpc-message"], HasSubstr("1048577 vs. 1048576"));
  EXPECT_EQ(StatusOf(small), "0");
}

TEST_F(SessionTest, AServiceThatThrowsEndsItsCallAlone) {
  Start();
  const int32_t thrown = client_.Call("/throw", Framed("x"));
  const int32_t other = client_.Call("/echo", Framed("x"));
  EXPECT_TRUE(Exchange());
  EXPECT_EQ(StatusOf(thrown), "13");
  EXPECT_EQ(StatusOf(other), "0");
  EXPECT_TRUE(service_.calls[0]->is_done);
}

TEST_F(SessionTest, AClosedConnectionCancelsAllCallsAndHoldsNothing) {
  Start();
  client_.Call("/hold", Framed("x"));
  client_.Call("/hold", Framed(std::string(kMib, 'x')).substr(0, 1000), {}, /*ends=*/false);
  EXPECT_TRUE(Exchange());
  EXPECT_TRUE(session_->IsWaiting());
  session_->Close();
  for (const auto& call : service_.calls) {
    EXPECT_TRUE(call->is_cancelled);
    call->rpc->Finish({});
    EXPECT_TRUE(call->is_done);
  }
  EXPECT_EQ(memory_->used_bytes(), 0U);
}

// 1,000 at once, then 500 a second.
TEST_F(SessionTest, AClientThatResetsItsCallsByTheThousandIsSentAway) {
  Start();
  service_.keeps_rpcs = false;
  int num_reset = 0;
  while (num_reset < 3000) {
    const int32_t id = client_.Call("/hold", Framed("x"), {}, /*ends=*/false);
    if (!Exchange()) break;
    nghttp2_submit_rst_stream(client_.session, 0, id, NGHTTP2_CANCEL);
    if (!Exchange()) break;
    ++num_reset;
  }
  EXPECT_NEAR(num_reset, 1000, 1);
  EXPECT_TRUE(client_.goaway.has_value());
}

TEST_F(SessionTest, AClientThatResetsSlowlyStays) {
  Start();
  service_.keeps_rpcs = false;
  // nghttp2 counts by the system's clock: fewer than it lets go at once.
  for (int i = 0; i < 900; ++i) {
    const int32_t id = client_.Call("/hold", Framed("x"), {}, /*ends=*/false);
    ASSERT_TRUE(Exchange());
    nghttp2_submit_rst_stream(client_.session, 0, id, NGHTTP2_CANCEL);
    ASSERT_TRUE(Exchange());
    now_ += 10ms;
  }
  EXPECT_FALSE(client_.goaway.has_value());
}

TEST_F(SessionTest, AClientThatPingsTooOftenIsSentAway) {
  Start();
  bool stays = true;
  for (int i = 0; i < 5 && stays; ++i) {
    nghttp2_submit_ping(client_.session, 0, nullptr);
    stays = Exchange();
  }
  EXPECT_FALSE(stays);
  EXPECT_EQ(client_.goaway, NGHTTP2_ENHANCE_YOUR_CALM);
}

TEST_F(SessionTest, WhatIsNotHttp2ClosesTheConnection) {
  Start();
  EXPECT_FALSE(session_->Receive("GET / HTTP/1.1\r\nHost: a\r\n\r\n and more", now_));
}

}  // namespace
}  // namespace inflight::grpc_listener
