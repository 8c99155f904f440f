// SPDX-License-Identifier: Apache-2.0
// Routes, states and events over real sockets, with a model that answers when the test says so.
// tests/protocol/test_cog.py compares answers with those of cog itself.
#include "protocol/cog/cog_server.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "protocol/cog/predictions.h"
#include "protocol/http_listener/test_client.h"
#include "protocol/kserve/http/fake_models.h"
#include "protocol/kserve/http/fake_server.h"
#include "serving/core/generation.h"

namespace inflight::cog {
namespace {

using http_listener::Get;
using http_listener::Post;
using http_listener::TestClient;
using http_listener::TestResponse;
using Json = nlohmann::json;

constexpr char kEnsemble[] = R"(
    name: "ensemble" model_transaction_policy { decoupled: true }
    input { name: "text_input" data_type: TYPE_STRING dims: 1 }
    input { name: "max_tokens" data_type: TYPE_INT32 dims: 1 }
    input { name: "stop_words" data_type: TYPE_STRING dims: -1 optional: true }
    input { name: "temperature" data_type: TYPE_FP32 dims: 1 optional: true }
    input { name: "top_p" data_type: TYPE_FP32 dims: 1 optional: true }
    input { name: "random_seed" data_type: TYPE_UINT64 dims: 1 optional: true }
    input { name: "stream" data_type: TYPE_BOOL dims: 1 optional: true }
    output { name: "text_output" data_type: TYPE_STRING dims: -1 })";
constexpr char kHello[] = R"({"id":"one","input":{"prompt":"hello","seed":7}})";
constexpr char kJsonType[] = "Content-Type: application/json\r\n";
const std::string kAsync = std::string(kJsonType) + "Prefer: respond-async\r\n";
const std::string kEvents = std::string(kJsonType) + "Accept: text/event-stream\r\n";

std::string Put(const std::string& id, const std::string& body, const std::string& headers) {
  return "PUT" + Post("/predictions/" + id, body, headers).substr(4);
}

class CogServerTest : public testing::Test {
 protected:
  CogServerTest() {
    fake_.Add(kEnsemble, [this](serving::Request request, serving::ResponseHandler handler) {
      held_.set_value({std::move(request), std::move(handler)});
    });
  }

  void Start(CogOptions options = {}) {
    Open(std::move(options));
    const Status ended = server_->EndSetUp();
    ASSERT_TRUE(ended.ok()) << ended.ToString();
  }
  // As it is while models are being loaded.
  void Open(CogOptions options = {}) {
    options.listener.address = "127.0.0.1";
    options.listener.port = 0;
    auto server = CogServer::Start(fake_, std::move(options));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  static CogOptions OneAtATime() {
    CogOptions options;
    options.concurrency = 1;
    return options;
  }

  TestResponse Ask(std::string_view request) {
    return http_listener::RoundTrip(server_->port(), request);
  }

  struct Held {
    serving::Request request;
    serving::ResponseHandler handler;

    void Say(const std::string& text) const {
      serving::Response response = kserve_http::Begin(request);
      response.is_final = false;
      response.outputs.push_back(
          serving::Tensor::FromStrings("text_output", {1}, std::span(&text, 1)));
      handler(std::move(response));
    }
    void End() const { handler(kserve_http::Begin(request)); }
    void Fail(Status status) const { handler(kserve_http::Fail(request, std::move(status))); }
  };
  // The next request that the model gets.
  Held TakeHeld() {
    auto held = held_.get_future();
    EXPECT_EQ(held.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    Held taken = held.get();
    held_ = {};
    return taken;
  }

  kserve_http::FakeServer fake_;
  std::promise<Held> held_;
  std::unique_ptr<CogServer> server_;
};

TEST_F(CogServerTest, APredictionIsAnsweredOnceItHasEnded) {
  Start();
  TestClient client(server_->port());
  client.Send(Post("/predictions", kHello, kJsonType));
  const Held held = TakeHeld();
  EXPECT_EQ(held.request.FindInput("text_input")->Strings()->front(), "hello");
  EXPECT_EQ(kserve_http::ValueOr<int32_t>(held.request, "max_tokens", 0), 512);
  EXPECT_EQ(kserve_http::ValueOr<uint64_t>(held.request, "random_seed", 0), 7);
  held.Say("wor");
  held.Say("");
  held.Say("ld\xEF\xBF\xBD");
  held.End();
  const TestResponse answer = client.Receive();
  EXPECT_EQ(answer.status, 200);
  const Json object = Json::parse(answer.body);
  EXPECT_EQ(object["output"], Json({"wor", "ld"}));
  EXPECT_EQ(object["status"], "succeeded");
  EXPECT_EQ(object["id"], "one");
  EXPECT_EQ(object["error"], nullptr);
  EXPECT_EQ(object["logs"],
            "Random seed used: `7`\nNote: Random seed will not impact output if greedy decoding is "
            "used.\nFormatted prompt: `hello`");
  EXPECT_EQ(object["metrics"]["output_token_count"], 3);
}

TEST_F(CogServerTest, OneMoreThanMayRunIsRefused) {
  Start(OneAtATime());
  EXPECT_EQ(Ask(Post("/predictions", kHello, kAsync)).status, 202);
  const Held held = TakeHeld();
  EXPECT_EQ(Json::parse(Ask(Get("/health-check")).body)["status"], "BUSY");
  const TestResponse refused = Ask(Post("/predictions", R"({"input":{"prompt":"x"}})", kJsonType));
  EXPECT_EQ(refused.status, 409);
  EXPECT_EQ(refused.body, R"({"detail":"Already running a prediction"})");
  held.End();
  EXPECT_EQ(Json::parse(Ask(Get("/health-check")).body)["status"], "READY");
}

TEST_F(CogServerTest, APutOfARunningIdShowsItAndBeginsNothing) {
  Start();
  EXPECT_EQ(Ask(Put("one", kHello, kAsync)).status, 202);
  const Held held = TakeHeld();
  held.Say("so far");
  const TestResponse again = Ask(Put("one", R"({"input":{"prompt":"other"}})", kJsonType));
  EXPECT_EQ(again.status, 202);
  const Json object = Json::parse(again.body);
  EXPECT_EQ(object["status"], "processing");
  EXPECT_EQ(object["output"], Json({"so far"}));
  EXPECT_EQ(object["input"]["prompt"], "hello");
  // A POST of its id is no way to join it.
  EXPECT_EQ(Ask(Post("/predictions", kHello, kJsonType)).status, 409);
  held.End();
}

TEST_F(CogServerTest, ACancelEndsAPredictionAsCanceled) {
  Start();
  TestClient client(server_->port());
  client.Send(Post("/predictions", kHello, kJsonType));
  const Held held = TakeHeld();
  held.Say("a");
  EXPECT_EQ(Ask(Post("/predictions/two/cancel", "")).status, 404);
  const TestResponse canceled = Ask(Post("/predictions/one/cancel", ""));
  EXPECT_EQ(canceled.status, 200);
  EXPECT_EQ(canceled.body, "{}");
  EXPECT_TRUE(held.request.cancel->cancelled());
  held.Fail(Cancelled("cancelled"));
  const Json object = Json::parse(client.Receive().body);
  EXPECT_EQ(object["status"], "canceled");
  EXPECT_EQ(object["output"], Json({"a"}));
  EXPECT_EQ(object["metrics"], nullptr);
  EXPECT_EQ(Ask(Post("/predictions/one/cancel", "")).status, 404);
}

// What a prediction keeps of its body, while it runs: the prompt and what it echoes.
TEST_F(CogServerTest, WhatAPredictionHoldsIsCharged) {
  const auto memory = MemoryAccount::Make(MemoryLimits::Of(size_t{16} << 20));
  CogOptions options;
  options.listener.memory = memory;
  Start(std::move(options));
  constexpr size_t kEchoed = 300'000;
  const std::string body =
      R"({"input":{"prompt":"x"},"other":")" + std::string(kEchoed, 'y') + "\"}";
  TestClient client(server_->port());
  client.Send(Post("/predictions", body, kAsync));
  EXPECT_EQ(client.Receive().status, 202);
  const Held held = TakeHeld();
  // The body is gone with the next request of its connection.
  EXPECT_EQ(client.Ask(Get("/health-check")).status, 200);
  EXPECT_GE(memory->used_bytes(), kEchoed);
  held.End();
}

// Of a MiB, half of which a connection may have: the body and its copies fit, and 100 prompts of
// 2,000 bytes do not.
TEST_F(CogServerTest, APromptThatHasNoRoomIsRefused) {
  const auto memory = MemoryAccount::Make(MemoryLimits::Of(size_t{1} << 20));
  CogOptions options;
  options.listener.memory = memory;
  Start(std::move(options));
  const auto body = [](int repeats) {
    std::string prompts;
    for (int i = 0; i < repeats; ++i) prompts += "{prompt}";
    return R"({"input":{"prompt":")" + std::string(2000, 'x') + R"(","prompt_template":")" +
           prompts + "\"}}";
  };
  EXPECT_EQ(Ask(Post("/predictions", body(1), kAsync)).status, 202);
  TakeHeld().End();
  const TestResponse refused = Ask(Post("/predictions", body(100), kAsync));
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("--request-memory-byte-size"), std::string::npos) << refused.body;
}

TEST_F(CogServerTest, APromptThatATemplateRepeatsHasTheBoundOfABody) {
  CogOptions options;
  options.max_input_bytes = 4096;
  Start(std::move(options));
  const std::string body = R"({"input":{"prompt":")" + std::string(1000, 'x') +
                           R"(","prompt_template":"{prompt}{prompt}{prompt}{prompt}{prompt}"}})";
  const Json object = Json::parse(Ask(Post("/predictions", body, kJsonType)).body);
  EXPECT_EQ(object["status"], "failed");
  EXPECT_EQ(object["error"],
            "E1002 PromptTooLong: the formatted prompt has 5000 bytes, at most 4096 are allowed; "
            "shorten prompt or prompt_template, or raise --http-max-input-size");
}

std::string EventText(const std::string& name, const std::string& data) {
  return "event: " + name + "\ndata: " + data + "\n\n";
}

TEST_F(CogServerTest, EventsComeAsTheModelAnswersAndAJoinerGetsAllOfThem) {
  Start();
  TestClient first(server_->port());
  first.Send(Put("one", kHello, kEvents));
  const Held held = TakeHeld();
  const TestResponse head = first.Receive(/*to_head=*/true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.Header("Content-Type"), "text/event-stream");
  held.Say("a");
  TestClient second(server_->port());
  second.Send(Put("one", kHello, kEvents));
  second.Receive(/*to_head=*/true);
  std::string seen = second.ReceiveChunk();
  held.Say("b");
  held.End();
  for (std::string chunk = second.ReceiveChunk(); !chunk.empty(); chunk = second.ReceiveChunk())
    seen += chunk;
  std::string all;
  for (std::string chunk = first.ReceiveChunk(); !chunk.empty(); chunk = first.ReceiveChunk())
    all += chunk;
  EXPECT_EQ(seen, all);
  const std::string expected = EventText("start", R"({"id":"one","status":"processing"})") +
                               EventText("output", R"({"chunk":"a","index":0})") +
                               EventText("output", R"({"chunk":"b","index":1})") + "event: log\n";
  EXPECT_EQ(all.substr(0, expected.size()), expected);
  const size_t completed = all.find("event: completed\ndata: ");
  ASSERT_NE(completed, std::string::npos);
  EXPECT_EQ(Json::parse(all.substr(completed + 23))["output"], Json({"a", "b"}));
}

// 20 texts of 100 bytes, where 1,000 may wait for a client that reads slowly.
TEST_F(CogServerTest, AJoinerOfALongPredictionGetsAllOfItAtOnce) {
  CogOptions options;
  options.listener.max_stream_buffer_bytes = 1000;
  Start(std::move(options));
  EXPECT_EQ(Ask(Put("one", kHello, kAsync)).status, 202);
  const Held held = TakeHeld();
  for (int i = 0; i < 20; ++i) held.Say(std::string(100, static_cast<char>('a' + i)));
  TestClient joiner(server_->port());
  joiner.Send(Put("one", kHello, kEvents));
  EXPECT_EQ(joiner.Receive(/*to_head=*/true).status, 200);
  const std::string events = joiner.ReceiveChunk();
  for (int i = 0; i < 20; ++i)
    EXPECT_NE(events.find(std::string(100, static_cast<char>('a' + i))), std::string::npos) << i;
  held.End();
}

TEST_F(CogServerTest, AClientThatGoesTakesItsPredictionWithIt) {
  Start();
  TestClient client(server_->port());
  client.Send(Post("/predictions", kHello, kJsonType));
  const Held held = TakeHeld();
  std::promise<void> canceled;
  held.request.cancel->SetListener([&] { canceled.set_value(); });
  client.Close();
  EXPECT_EQ(canceled.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  held.Fail(Cancelled("cancelled"));
}

TEST_F(CogServerTest, FailuresHaveCodes) {
  Start();
  const std::pair<Status, std::string> cases[] = {
      {InvalidArgument("Prompt length (9) exceeds maximum input length (8).")
           .WithReason(Reason::kPromptTooLong),
       "E1002 PromptTooLong: Prompt length (9) exceeds maximum input length (8)."},
      {DeadlineExceeded("late"), "E2101 TritonTimeout: late"},
      {Internal("broken"), "E2100 TritonUnknownError: broken"}};
  for (const auto& [status, error] : cases) {
    TestClient client(server_->port());
    client.Send(Post("/predictions", kHello, kJsonType));
    TakeHeld().Fail(status);
    const TestResponse answer = client.Receive();
    EXPECT_EQ(answer.status, 200);
    const Json object = Json::parse(answer.body);
    EXPECT_EQ(object["status"], "failed");
    EXPECT_EQ(object["error"], error);
  }
  const TestResponse blank = Ask(Post("/predictions", R"({"input":{"prompt":""}})", kJsonType));
  EXPECT_EQ(blank.status, 200);
  EXPECT_TRUE(
      Json::parse(blank.body)["error"].get<std::string>().starts_with("E1001 PromptRequired"));
}

TEST_F(CogServerTest, AModelWithoutAnInputSaysSo) {
  Start();
  const TestResponse answer =
      Ask(Post("/predictions", R"({"input":{"prompt":"a","presence_penalty":1}})", kJsonType));
  EXPECT_EQ(Json::parse(answer.body)["error"],
            "E2100 TritonUnknownError: model 'ensemble' has no input 'presence_penalty', leave it "
            "out");
}

TEST_F(CogServerTest, WithoutItsModelItIsStarting) {
  CogOptions options;
  options.model = "ensemble";
  Start(std::move(options));
  dynamic_cast<kserve_http::FakeModel&>(*fake_.models()[0]).is_ready = false;
  EXPECT_EQ(Json::parse(Ask(Get("/health-check")).body)["status"], "STARTING");
  EXPECT_EQ(Ask(Post("/predictions", kHello, kJsonType)).status, 409);
}

TEST_F(CogServerTest, AModelThatIsNotThereIsNoStart) {
  CogOptions options;
  options.model = "nobody";
  Open(std::move(options));
  const Status status = server_->EndSetUp();
  EXPECT_TRUE(status.message().starts_with("--cog-model: ")) << status.message();
}

TEST_F(CogServerTest, UntilModelsAreLoadedItIsStarting) {
  Open();
  EXPECT_EQ(Ask(Get("/health-check")).body, R"({"status":"STARTING","setup":{}})");
  EXPECT_EQ(Ask(Post("/predictions", kHello, kJsonType)).status, 409);
  ASSERT_TRUE(server_->EndSetUp().ok());
  const Json health = Json::parse(Ask(Get("/health-check")).body);
  EXPECT_EQ(health["status"], "READY");
  EXPECT_EQ(health["setup"]["status"], "succeeded");
  EXPECT_EQ(health["setup"]["logs"], "");
}

TEST(CogServerSetUp, ThatFailsIsToldWithItsReason) {
  kserve_http::FakeServer empty;  // but for a model that could not be loaded
  CogOptions options;
  options.listener.address = "127.0.0.1";
  options.listener.port = 0;
  const auto server = CogServer::Start(empty, std::move(options));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  ASSERT_TRUE((*server)->EndSetUp().ok());
  const auto ask = [&](std::string_view request) {
    return http_listener::RoundTrip((*server)->port(), request);
  };
  const Json health = Json::parse(ask(Get("/health-check")).body);
  EXPECT_EQ(health["status"], "SETUP_FAILED");
  EXPECT_EQ(health["setup"]["status"], "failed");
  EXPECT_EQ(health["setup"]["logs"], "model 'broken': Internal: no file\n");
  EXPECT_EQ(ask(Post("/predictions", kHello, kJsonType)).status, 409);
  empty.Add(kEnsemble);  // it was loaded later
  EXPECT_EQ(Json::parse(ask(Get("/health-check")).body)["status"], "READY");
}

std::string WithIds() {
  std::string config = kEnsemble;
  return config.replace(config.find("text_output"), std::string("text_output").size(),
                        "output_ids");
}

TEST(CogServerAnswers, AreTextsOfIdsWhereTheModelHasATokenizer) {
  kserve_http::FakeServer fake;
  std::promise<serving::Request> asked;
  kserve_http::FakeModel& model =
      fake.Add(WithIds(), [&](serving::Request request, const serving::ResponseHandler& handler) {
        serving::Response response = kserve_http::Begin(request);
        const std::string text = "of ids";
        response.outputs.push_back(
            serving::Tensor::FromStrings("text_output", {1}, std::span(&text, 1)));
        asked.set_value(std::move(request));
        handler(std::move(response));
      });
  CogOptions options;
  options.listener.address = "127.0.0.1";
  options.listener.port = 0;
  const auto server = CogServer::Start(fake, std::move(options));
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  const Status refused = (*server)->EndSetUp();
  EXPECT_TRUE(refused.message().starts_with("--cog-port: model 'ensemble' has no output"))
      << refused.message();
  model.text_model = std::make_shared<const serving::TextModel>();
  ASSERT_TRUE((*server)->EndSetUp().ok());
  const TestResponse answer =
      http_listener::RoundTrip((*server)->port(), Post("/predictions", kHello, kJsonType));
  EXPECT_EQ(Json::parse(answer.body)["output"], Json({"of ids"})) << answer.body;
  EXPECT_TRUE(asked.get_future().get().wants_text);
}

TEST_F(CogServerTest, AShutdownIsAnsweredBeforeItHappens) {
  std::promise<void> shut;
  CogOptions options;
  options.shutdown = [&] { shut.set_value(); };
  Start(std::move(options));
  const TestResponse answer = Ask(Post("/shutdown", ""));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "{}");
  EXPECT_EQ(shut.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(CogServerTest, RestrictedApisAskForTheirHeader) {
  CogOptions options;
  options.shutdown = [] { FAIL(); };
  options.access.policy = *kserve::AccessPolicy::Load(
      {.restrictions = {.http = {"model-repository:key=secret"}, .grpc = {}}});
  Start(std::move(options));
  EXPECT_EQ(Ask(Post("/shutdown", "")).status, 403);
  EXPECT_EQ(Ask(Get("/health-check")).status, 200);
}

TEST_F(CogServerTest, WebhooksOfThisMachineAreRefused) {
  Start();
  for (const char* url : {"http://127.0.0.1:1/", "http://localhost/", "http://[::1]/x",
                          "http://169.254.169.254/latest"}) {
    const TestResponse answer = Ask(Post(
        "/predictions", Json{{"input", {{"prompt", "a"}}}, {"webhook", url}}.dump(), kJsonType));
    EXPECT_EQ(answer.status, 422) << url;
    EXPECT_EQ(Json::parse(answer.body)["detail"][0]["loc"], Json({"body", "webhook"})) << url;
  }
}

TEST(PredictionsTest, AnIdIsThatOfOneClient) {
  const auto predictions = std::make_shared<Predictions>(8);
  const Identity mine{1};
  const Identity theirs{2};
  const auto start = [] {
    PredictionStart one;
    one.request.id = "one";
    return one;
  };
  const auto first = predictions->Add(mine, start());
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(predictions->Find(mine, "one"), first);
  EXPECT_EQ(predictions->Find(theirs, "one"), nullptr);
  EXPECT_EQ(predictions->Add(mine, start()), nullptr);
  const auto other = predictions->Add(theirs, start());
  ASSERT_NE(other, nullptr);
  other->OnResponse({.is_final = true}, /*has_prompt=*/false);
  EXPECT_EQ(predictions->Find(theirs, "one"), nullptr);
  EXPECT_EQ(predictions->Find(mine, "one"), first);
  first->OnResponse({.is_final = true}, /*has_prompt=*/false);
  EXPECT_EQ(predictions->Find(mine, "one"), nullptr);
}

}  // namespace
}  // namespace inflight::cog
