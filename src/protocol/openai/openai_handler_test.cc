// SPDX-License-Identifier: Apache-2.0
// On which threads endpoints do their work, and what of it is charged.
#include "protocol/openai/openai_handler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "protocol/http_listener/test_client.h"
#include "protocol/kserve/http/fake_server.h"
#include "serving/core/generation.h"
#include "serving/testing/fake_executor.h"

namespace inflight::openai {
namespace {

using http_listener::Get;
using http_listener::Post;
using http_listener::TestResponse;
using testing::HasSubstr;

// Says on which thread it was asked for all names, as which a folder is walked.
class WatchedAdapters final : public serving::AdapterNames {
 public:
  std::vector<std::string> Names() const override {
    NoteThread();
    return {"adapter"};
  }
  Result<serving::FoundAdapter> Find(const std::string& name) override {
    NoteThread();
    ++num_found;
    if (name != "adapter") return NotFound(name);
    return serving::FoundAdapter{.use = {.id = 7, .is_own = true}};
  }

  void NoteThread() const {
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    thread = name.data();
  }

  mutable std::string thread;  // that asked last
  int num_found = 0;
};

class OpenAiHandlerTest : public testing::Test {
 protected:
  void Start(std::shared_ptr<MemoryAccount> memory = nullptr,
             std::shared_ptr<ResponseStore> responses = nullptr) {
    auto text = std::make_shared<serving::TextModel>();
    text->tokenizer = *Tokenizer::FromJson(serving::ByteTokenizerJson());
    text->limits = serving::FakeExecutor::SmallLimits();
    text->adapters = adapters_;
    fake_
        .Add(R"(name: "words")",
             [this](const serving::Request& request, const serving::ResponseHandler& handler) {
               asked_ = request.adapter;
               for (const std::string& text : says_) {
                 auto generated = std::make_shared<serving::Generated>();
                 generated->text = text;
                 serving::Response said;
                 said.generated = std::move(generated);
                 handler(std::move(said));
                 if (memory_ != nullptr) used_.push_back(memory_->used_bytes());
               }
               was_cancelled_ = request.cancel->cancelled();
               handler({.status = InvalidArgument("enough"), .is_final = true});
             })
        .text_model = std::move(text);
    http_listener::ListenerOptions listener;
    listener.address = "127.0.0.1";
    listener.port = 0;
    listener.memory = memory_ = std::move(memory);
    auto server = OpenAiServer::Start(fake_, listener, {.responses = std::move(responses)});
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  TestResponse Ask(std::string_view request) const {
    return http_listener::RoundTrip(server_->port(), request);
  }

  kserve_http::FakeServer fake_;
  std::shared_ptr<WatchedAdapters> adapters_ = std::make_shared<WatchedAdapters>();
  std::shared_ptr<const serving::FoundAdapter> asked_;  // of the last request
  std::vector<std::string> says_;                       // the model, before it has had enough
  std::shared_ptr<MemoryAccount> memory_;
  std::vector<size_t> used_;  // of it, behind each of these
  bool was_cancelled_ = false;
  std::unique_ptr<OpenAiServer> server_;
};

TEST_F(OpenAiHandlerTest, TheListOfModelsLooksAtFilesOffTheIoThreads) {
  Start();
  const TestResponse response = Ask(Get("/v1/models"));
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.body, HasSubstr(R"("id":"adapter")"));
  EXPECT_EQ(adapters_->thread, "http-body");
}

TEST_F(OpenAiHandlerTest, ARequestBringsTheAdapterThatItsNameWasFoundToBe) {
  Start();
  Ask(Post("/v1/completions", R"({"model": "adapter", "prompt": "a"})"));
  ASSERT_NE(asked_, nullptr);
  EXPECT_EQ(asked_->use.id, 7U);
  EXPECT_EQ(adapters_->num_found, 1);
  Ask(Post("/v1/completions", R"({"model": "words", "prompt": "a"})"));
  EXPECT_EQ(asked_, nullptr);
}

// Half a MiB of ids: a connection may hold 8 MiB, and tokenizing so much text takes 20.
TEST_F(OpenAiHandlerTest, DetokenizingIsChargedByItsIdsAndItsText) {
  const auto memory = MemoryAccount::Make(MemoryLimits::Of(size_t{16} << 20));
  Start(memory);
  std::string ids = R"({"tokens": [97)";
  while (ids.size() < 512 * 1024) ids += ",97";
  const TestResponse response = Ask(Post("/detokenize", ids + "]}"));
  EXPECT_EQ(response.status, 200) << response.body;
  const std::string text = R"({"prompt": ")" + std::string(512 * 1024, 'a') + R"("})";
  EXPECT_EQ(Ask(Post("/tokenize", text)).status, 503);
}

// Of 64 KiB and more; what it goes on from counts like its body.
TEST_F(OpenAiHandlerTest, AKeptConversationThatIsLongIsReadOffTheIoThreads) {
  const auto responses =
      std::make_shared<ResponseStore>(size_t{1} << 20, /*max_idle_s=*/60, /*memory=*/nullptr);
  ASSERT_TRUE(responses->Put({}, "short", {.conversation = std::string(100, ' ')}));
  ASSERT_TRUE(responses->Put({}, "long", {.conversation = std::string(64 * 1024, ' ')}));
  Start(/*memory=*/nullptr, responses);
  const auto thread_of = [this](const std::string& previous) {
    Ask(Post("/v1/responses",
             R"({"model": "adapter", "input": "x", "previous_response_id": ")" + previous + "\"}"));
    return adapters_->thread;
  };
  EXPECT_NE(thread_of("short"), "http-body");
  EXPECT_EQ(thread_of("long"), "http-body");
  EXPECT_NE(thread_of("neither"), "http-body");
}

TEST_F(OpenAiHandlerTest, AKeptConversationIsChargedToWhoGoesOnFromIt) {
  const auto responses =
      std::make_shared<ResponseStore>(size_t{1} << 20, /*max_idle_s=*/60, /*memory=*/nullptr);
  ASSERT_TRUE(responses->Put({}, "long", {.conversation = std::string(64 * 1024, ' ')}));
  Start(MemoryAccount::Make(MemoryLimits::Of(256 * 1024)), responses);
  const auto ask = [this](const std::string& more) {
    return Ask(Post("/v1/responses", R"({"input": "x")" + more + "}")).status;
  };
  EXPECT_EQ(ask(""), 400);  // the model has no chat template
  EXPECT_EQ(ask(R"(, "previous_response_id": "long")"), 503);
}

TEST_F(OpenAiHandlerTest, AWholeAnswerIsChargedAsItGrows) {
  Start(MemoryAccount::Make(MemoryLimits::Of(size_t{1} << 20)));
  says_.assign(10, std::string(10'000, 'x'));
  EXPECT_THAT(Ask(Post("/v1/completions", R"({"prompt": "a"})")).body, HasSubstr("enough"));
  ASSERT_EQ(used_.size(), 10U);
  EXPECT_GE(used_.back(), 100'000U);
  EXPECT_LT(used_.front(), 100'000U);
  EXPECT_FALSE(was_cancelled_);
}

// 128 KiB, of which a connection may have half.
TEST_F(OpenAiHandlerTest, AWholeAnswerThatHasNoRoomEnds) {
  Start(MemoryAccount::Make(MemoryLimits::Of(128 * 1024)));
  says_.assign(10, std::string(10'000, 'x'));
  const TestResponse refused = Ask(Post("/v1/completions", R"({"prompt": "a"})"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("--request-memory-byte-size"));
  EXPECT_TRUE(was_cancelled_);
}

// Ids as they are, of which each has one byte of text, of a model that takes 32.
std::string IdPrompt(int count) {
  std::string ids = "[97";
  for (int i = 1; i < count; ++i) ids += ",97";
  return ids + "]";
}

TEST_F(OpenAiHandlerTest, AnEchoOfMoreIdsThanTheModelTakesIsNotMade) {
  Start();
  const auto ask = [this](int count) {
    return Ask(Post("/v1/completions", R"({"echo": true, "prompt": )" + IdPrompt(count) + "}"));
  };
  EXPECT_THAT(ask(32).body, HasSubstr("enough"));  // as the model says
  const TestResponse refused = ask(33);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("context_length_exceeded"));
  EXPECT_THAT(refused.body, HasSubstr("has 33 tokens, 1 more than the 32"));
}

// 8 prompts of 128 answers, of which each begins with 32 bytes: 33,024 with the prompts' own, of
// 32,768 that a connection may hold.
TEST_F(OpenAiHandlerTest, EchoesAreChargedBeforeTheyAreMade) {
  Start(MemoryAccount::Make(MemoryLimits::Of(64 * 1024)));
  const auto ask = [this](const std::string& echo) {
    std::string prompts = IdPrompt(32);
    for (int i = 1; i < 8; ++i) prompts += "," + IdPrompt(32);
    return Ask(Post("/v1/completions",
                    R"({"n": 128, "echo": )" + echo + R"(, "prompt": [)" + prompts + "]}"));
  };
  EXPECT_THAT(ask("false").body, HasSubstr("enough"));
  EXPECT_EQ(ask("true").status, 503);
}

}  // namespace
}  // namespace inflight::openai
