// SPDX-License-Identifier: Apache-2.0
// ModelStreamInfer of a real gRPC server: order, marks, errors, cancellation, slow clients.
#include "protocol/kserve/grpc/stream_call.h"

#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "protocol/kserve/grpc/grpc_test_fixture.h"

namespace inflight::kserve_grpc {
namespace {

using ::testing::HasSubstr;
using StreamCallTest = GrpcServerTest;

TEST_F(StreamCallTest, StreamedResponsesCarryTheFinalMark) {
  Stream stream(*stub_);
  stream.Write(Request("many", "r"));
  const auto received = many_->Take();
  received->RespondText("one", /*is_final=*/false);
  EXPECT_EQ(stream.Read(), "r:one");
  EXPECT_EQ(stream.last().model_version(), "1");
  received->RespondText("two", /*is_final=*/true);
  EXPECT_EQ(stream.Read(), "r:two+");
  stream.HalfClose();
  EXPECT_EQ(stream.Read(), "end");
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(StreamCallTest, BareCompletionIsSilentUnlessAskedFor) {
  Stream stream(*stub_);
  stream.Write(Request("many", "silent"));
  const auto silent = many_->Take();
  silent->RespondText("x", /*is_final=*/false);
  silent->Complete();
  auto request = Request("many", "told");
  (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
  stream.Write(request);
  many_->Take()->Complete();
  stream.HalfClose();
  EXPECT_EQ(stream.Read(), "silent:x");
  EXPECT_EQ(stream.Read(), "told+");
  EXPECT_EQ(stream.last().model_name(), "many");
  EXPECT_EQ(stream.last().model_version(), "");  // as the request named it
  EXPECT_EQ(stream.last().outputs_size(), 0);
  EXPECT_EQ(stream.Read(), "end");
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(StreamCallTest, StreamAnswersPlainModelsInRequestOrderAndDecoupledOnesAsTheyCome) {
  Stream stream(*stub_);
  stream.Write(Request("single", "a"));
  const auto a = single_->Take();
  stream.Write(Request("single", "b"));
  const auto b = single_->Take();
  stream.Write(Request("many", "c"));
  const auto c = many_->Take();
  stream.Write(Request("nosuch", "d"));
  b->RespondText("2", /*is_final=*/true);
  c->RespondText("3", /*is_final=*/true);
  EXPECT_EQ(stream.Read(), "c:3+");
  a->RespondText("1", /*is_final=*/true);
  EXPECT_EQ(stream.Read(), "a:1+");
  EXPECT_EQ(stream.Read(), "b:2+");
  EXPECT_EQ(stream.Read(), "d!Request for unknown model: 'nosuch' is not found?");
  stream.HalfClose();
  EXPECT_EQ(stream.Read(), "end");
  EXPECT_TRUE(stream.Finish().ok());
}

// Small ones leave together; large ones fill more than gRPC holds back.
TEST_F(StreamCallTest, ResponsesThatAreReadyBeforeTheFirstWriteGoOut) {
  for (const size_t num_bytes : {1, 40'000}) {
    Stream stream(*stub_);
    std::vector<std::optional<ReceivedRequest>> received;
    for (const char* id : {"a", "b", "c", "d"}) {
      stream.Write(Request("single", id));
      received.push_back(single_->Take());
    }
    const std::string text(num_bytes, 'x');
    for (const int i : {3, 2, 1, 0}) received[i]->RespondText(text, /*is_final=*/true);
    for (const char* id : {"a:", "b:", "c:", "d:"}) EXPECT_EQ(stream.Read(), id + text + "+");
    stream.HalfClose();
    EXPECT_EQ(stream.Read(), "end");
    EXPECT_TRUE(stream.Finish().ok());
  }
}

TEST_F(StreamCallTest, StreamSurvivesErrorsAndNamesTheRequest) {
  Stream stream(*stub_);
  auto reserved = Request("many", "early");
  (*reserved.mutable_parameters())["triton_x"].set_bool_param(true);
  stream.Write(reserved);
  EXPECT_THAT(stream.Read(), ::testing::StartsWith("early!parameter keys starting with"));
  EXPECT_EQ(stream.last().model_name(), "");
  EXPECT_EQ(stream.last().parameters_size(), 0);

  stream.Write(Request("many", "late"));
  const auto received = many_->Take();
  received->Fail(Internal("failure requested"), /*is_final=*/false);
  EXPECT_EQ(stream.Read(), "late!failure requested");
  EXPECT_EQ(stream.last().model_name(), "many");
  received->RespondText("more", /*is_final=*/true);
  EXPECT_EQ(stream.Read(), "late:more+");
  stream.HalfClose();
  EXPECT_EQ(stream.Read(), "end");
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(StreamCallTest, StrictStreamEndsWithTheFirstErrorOfAnExecution) {
  Stream stream(*stub_, "true");
  stream.Write(Request("nosuch", "early"));  // not an execution: an element
  EXPECT_THAT(stream.Read(), HasSubstr("early!"));
  stream.Write(Request("many", "other"));
  const auto other = many_->Take();
  stream.Write(Request("many", "failing"));
  const auto failing = many_->Take();
  failing->RespondText("a", /*is_final=*/false);
  failing->Fail(Internal("failure requested"));
  EXPECT_EQ(stream.Read(), "failing:a");
  EXPECT_EQ(stream.Read(), "end");
  const auto status = stream.Finish();
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message(), "failure requested");
  EXPECT_TRUE(IsCancelled(*other));
  other->RespondText("too late", /*is_final=*/true);
}

TEST_F(StreamCallTest, StrictModeIsTheWordTrueInLowerCase) {
  Stream stream(*stub_, "True");
  stream.Write(Request("single", "r"));
  single_->Take()->Fail(Internal("why"));
  EXPECT_EQ(stream.Read(), "r!why+");
  stream.HalfClose();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(StreamCallTest, HalfCloseWaitsForRequestsInProgress) {
  Stream stream(*stub_);
  stream.Write(Request("single", "r"));
  stream.HalfClose();
  single_->Take()->RespondText("late", /*is_final=*/true);
  EXPECT_EQ(stream.Read(), "r:late+");
  EXPECT_EQ(stream.Read(), "end");
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(StreamCallTest, CancelOfAStreamReachesEveryRequest) {
  Stream stream(*stub_);
  stream.Write(Request("many", "a"));
  stream.Write(Request("single", "b"));
  const auto a = many_->Take();
  const auto b = single_->Take();
  stream.Cancel();
  EXPECT_EQ(stream.Finish().error_code(), ::grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(IsCancelled(*a));
  EXPECT_TRUE(IsCancelled(*b));
  a->Fail(Cancelled("request was cancelled"));
  b->Fail(Cancelled("request was cancelled"));
}

TEST_F(StreamCallTest, ManyStreamsAndRequestsDoNotMix) {
  constexpr int kStreams = 8;
  constexpr int kRequests = 25;
  std::thread model([this] {
    for (int i = 0; i < kStreams * kRequests; ++i) {
      const auto received = many_->Take();
      ASSERT_TRUE(received);
      received->RespondText(received->request.id, /*is_final=*/false);
      received->RespondText(received->request.id, /*is_final=*/true);
    }
  });
  std::vector<std::thread> clients;
  for (int s = 0; s < kStreams; ++s) {
    clients.emplace_back([this, s] {
      Stream stream(*stub_);
      for (int r = 0; r < kRequests; ++r) {
        stream.Write(Request("many", std::to_string(s) + "-" + std::to_string(r)));
      }
      stream.HalfClose();
      for (int r = 0; r < kRequests; ++r) {
        const std::string id = std::to_string(s) + "-" + std::to_string(r);
        EXPECT_EQ(stream.Read(), id + ":" + id);
        EXPECT_EQ(stream.Read(), id + ":" + id + "+");
      }
      EXPECT_EQ(stream.Read(), "end");
      EXPECT_TRUE(stream.Finish().ok());
    });
  }
  for (auto& client : clients) client.join();
  model.join();
}

TEST_F(StreamCallTest, ClientThatDoesNotReadIsCancelled) {
  Start({.max_pending_responses = 10, .max_pending_response_bytes = 10 << 20});
  Stream stream(*stub_);
  stream.Write(Request("many", "r"));
  const auto received = many_->Take();
  const std::string big(1 << 20, 'x');  // fills the connection's window soon
  for (int i = 0; i < 1000 && !received->request.cancel->cancelled(); ++i) {
    received->RespondText(big, /*is_final=*/false);
  }
  EXPECT_TRUE(IsCancelled(*received));
  received->Fail(Cancelled("request was cancelled"));
  while (stream.Read() != "end") {
  }
  const auto status = stream.Finish();
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("more than 16394 responses or 10485760 bytes"));
}

// A model that can wait; its client reads when the queue has been full.
class HeldModelTest : public StreamCallTest {
 protected:
  static constexpr int kResponses = 64;
  const std::string big_ = std::string(1 << 20, 'x');  // fills the connection's window soon

  void SetUp() override {
    StreamCallTest::SetUp();
    Start({.max_pending_responses = 2, .max_pending_response_bytes = 4 << 20});
    many_->can_wait = true;
  }
  // Sends all of them and a final one on a thread of its own.
  std::thread Respond(const ReceivedRequest& request) {
    return std::thread([this, request] {
      for (int i = 0; i < kResponses; ++i) {
        request.RespondText(big_, /*is_final=*/false);
        if (i == 2) full_.set_value();  // one is on its way, two wait
      }
      request.Complete();
    });
  }
  std::promise<void> full_;
};

TEST_F(HeldModelTest, WaitsForTheClient) {
  Stream stream(*stub_);
  stream.Write(Request("many", "r"));
  const auto received = many_->Take();
  std::thread model = Respond(*received);
  full_.get_future().wait();
  for (int i = 0; i < kResponses; ++i) ASSERT_EQ(stream.Read(), "r:" + big_);
  stream.HalfClose();
  EXPECT_EQ(stream.Read(), "end");
  EXPECT_TRUE(stream.Finish().ok());
  model.join();
}

TEST_F(HeldModelTest, GoesOnWhenTheClientIsGone) {
  Stream stream(*stub_);
  stream.Write(Request("many", "r"));
  const auto received = many_->Take();
  std::thread model = Respond(*received);
  full_.get_future().wait();
  stream.Cancel();
  model.join();
  EXPECT_EQ(stream.Finish().error_code(), ::grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(IsCancelled(*received));
}

// The thread that would wait is the one that writes.
TEST_F(HeldModelTest, IsNotHeldWithinItsCall) {
  many_->at_once = [](const ReceivedRequest& request) {
    for (int i = 0; i < kResponses; ++i) request.RespondText("x", /*is_final=*/false);
    request.Complete();
  };
  Stream stream(*stub_);
  stream.Write(Request("many", "r"));
  for (int i = 0; i < kResponses; ++i) ASSERT_EQ(stream.Read(), "r:x");
  stream.HalfClose();
  EXPECT_EQ(stream.Read(), "end");
  EXPECT_TRUE(stream.Finish().ok());
}

// A model whose requests are held one by one, as an LLM's: it makes responses while they are not.
class HeldRequestTest : public StreamCallTest {
 protected:
  // What the front end says of a request.
  struct Holds {
    explicit Holds(const ReceivedRequest& request) {
      request.request.hold->AddListener([this](bool is_held) {
        const std::lock_guard lock(mutex);
        news.push_back(is_held);
        changed.notify_all();
      });
    }
    bool Await(bool is_held, std::chrono::milliseconds patience = std::chrono::seconds(10)) {
      std::unique_lock lock(mutex);
      return changed.wait_for(lock, patience,
                              [&] { return !news.empty() && news.back() == is_held; });
    }
    bool is_held() {
      const std::lock_guard lock(mutex);
      return !news.empty() && news.back();
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::vector<bool> news;
  };

  const std::string big_ = std::string(1 << 20, 'x');  // fills the connection's window soon

  // Number of responses until the request is held. Each leaves the I/O thread some time.
  int RespondUntilHeld(const ReceivedRequest& request, Holds& holds) {
    int num_responses = 0;
    for (; num_responses < 1000 && !holds.Await(true, std::chrono::milliseconds(2));
         ++num_responses)
      request.RespondText(big_, /*is_final=*/false);
    return num_responses;
  }
};

TEST_F(HeldRequestTest, IsHeldAtThePoolsSizeAndGoesOnWhenItsClientReads) {
  Start({.max_pending_responses = 3});
  Stream stream(*stub_);
  stream.Write(Request("many", "r"));
  const auto received = many_->Take();
  Holds holds(*received);
  int num_responses = RespondUntilHeld(*received, holds);
  ASSERT_TRUE(holds.is_held());
  EXPECT_LE(num_responses, 100) << "the window's, one that is being written, three that wait";

  // One that comes meanwhile is held from its start.
  stream.Write(Request("many", "late"));
  const auto late = many_->Take();
  Holds late_holds(*late);
  EXPECT_TRUE(late_holds.is_held());

  for (int i = 0; i < num_responses; ++i) ASSERT_EQ(stream.Read(), "r:" + big_);
  EXPECT_TRUE(holds.Await(false));
  EXPECT_TRUE(late_holds.Await(false));
  num_responses = RespondUntilHeld(*received, holds);
  ASSERT_TRUE(holds.is_held());
  for (int i = 0; i < num_responses; ++i) ASSERT_EQ(stream.Read(), "r:" + big_);
  EXPECT_TRUE(holds.Await(false));
  received->Complete();
  late->Complete();
  stream.HalfClose();
  EXPECT_EQ(stream.Read(), "end");
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(HeldRequestTest, HalfOfTheBytesHoldTooAndACancelComesThrough) {
  Start({.max_pending_response_bytes = 8 << 20});
  Stream stream(*stub_);
  stream.Write(Request("many", "r"));
  const auto received = many_->Take();
  Holds holds(*received);
  EXPECT_LE(RespondUntilHeld(*received, holds), 100);
  ASSERT_TRUE(holds.is_held());
  EXPECT_FALSE(received->request.cancel->cancelled());
  stream.Cancel();
  EXPECT_EQ(stream.Finish().error_code(), ::grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(IsCancelled(*received));
  received->Fail(Cancelled("request was cancelled"));
}

TEST_F(HeldRequestTest, AModelThatIsNotDecoupledIsNot) {
  Stream stream(*stub_);
  stream.Write(Request("single", "r"));
  const auto received = single_->Take();
  EXPECT_EQ(received->request.hold, nullptr);
  received->RespondText("x", /*is_final=*/true);
  stream.HalfClose();
  EXPECT_EQ(stream.Read(), "r:x+");
  EXPECT_EQ(stream.Read(), "end");
  EXPECT_TRUE(stream.Finish().ok());
}

// Without a listener: what comes when is the test's to say.
class PlayedRpc final : public grpc_listener::Rpc {
 public:
  std::string_view path() const override { return "/stream"; }
  const grpc_listener::Metadata& metadata() const override { return metadata_; }
  const std::string& client() const override { return client_; }
  const std::shared_ptr<AccountShare>& share() const override { return share_; }
  std::shared_ptr<RequestTally> tally() const override { return nullptr; }
  const std::vector<grpc_listener::Coding>& accepted_codings() const override { return codings_; }
  int64_t read_started_ns() const override { return 0; }
  void SetResponseCoding(grpc_listener::Coding) override {}
  void Read() override {}
  void Write(std::string) override {}
  void Finish(Status, std::string) override { ++num_finished; }
  void Lose() override {}
  void Post(std::function<void()>) override {}

  int num_finished = 0;

 private:
  const grpc_listener::Metadata metadata_;
  const std::string client_ = "127.0.0.1";
  const std::shared_ptr<AccountShare> share_;
  const std::vector<grpc_listener::Coding> codings_;
};

// A large message is parsed beside the I/O thread, which is told of the cancel meanwhile.
TEST(StreamCallWithoutListener, AMessageThatIsParsedAfterACancelIsNotRun) {
  FakeServer models;
  FakeModel& many = models.AddModel("many", /*is_decoupled=*/true);
  int num_run = 0;
  many.at_once = [&](const ReceivedRequest& request) {
    ++num_run;
    request.Complete();
  };
  ActiveCalls calls(10);
  const auto rpc = std::make_shared<PlayedRpc>();
  const auto call = StreamCall::Start(models, calls, {}, {}, rpc);
  const auto message = [] {
    grpc_listener::RpcMessage bytes;
    bytes.bytes = Request("many", "r").SerializeAsString();
    return bytes;
  };
  call->OnMessage(message());
  EXPECT_EQ(num_run, 1);
  call->OnCancel();
  EXPECT_EQ(rpc->num_finished, 1);
  call->OnMessage(message());
  EXPECT_EQ(num_run, 1);
  call->OnDone();
}

}  // namespace
}  // namespace inflight::kserve_grpc
