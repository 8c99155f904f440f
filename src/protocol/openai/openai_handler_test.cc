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
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    thread = name.data();
    return {"adapter"};
  }
  Result<serving::FoundAdapter> Find(const std::string& name) override {
    ++num_found;
    if (name != "adapter") return NotFound(name);
    return serving::FoundAdapter{.use = {.id = 7, .is_own = true}};
  }

  mutable std::string thread;
  int num_found = 0;
};

class OpenAiHandlerTest : public testing::Test {
 protected:
  void Start(std::shared_ptr<MemoryAccount> memory = nullptr) {
    auto text = std::make_shared<serving::TextModel>();
    text->tokenizer = *Tokenizer::FromJson(serving::ByteTokenizerJson());
    text->limits = serving::FakeExecutor::SmallLimits();
    text->adapters = adapters_;
    fake_
        .Add(R"(name: "words")",
             [this](const serving::Request& request, const serving::ResponseHandler& handler) {
               asked_ = request.adapter;
               handler({.status = InvalidArgument("enough"), .is_final = true});
             })
        .text_model = std::move(text);
    http_listener::ListenerOptions listener;
    listener.address = "127.0.0.1";
    listener.port = 0;
    listener.memory = std::move(memory);
    auto server = OpenAiServer::Start(fake_, listener, {});
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  TestResponse Ask(std::string_view request) const {
    return http_listener::RoundTrip(server_->port(), request);
  }

  kserve_http::FakeServer fake_;
  std::shared_ptr<WatchedAdapters> adapters_ = std::make_shared<WatchedAdapters>();
  std::shared_ptr<const serving::FoundAdapter> asked_;  // of the last request
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

}  // namespace
}  // namespace inflight::openai
