// SPDX-License-Identifier: Apache-2.0
// A real gRPC server on a free port, a real client, and models that the test answers by hand.
#include "protocol/kserve/grpc/grpc_server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grpc_service.grpc.pb.h"
#include "health.grpc.pb.h"
#include "protocol/kserve/grpc/fake_server.h"

namespace inflight::kserve_grpc {
namespace {

using ::grpc::ClientContext;
using ::inference::GRPCInferenceService;
using ::inference::ModelInferRequest;
using ::inference::ModelInferResponse;
using ::inference::ModelStreamInferResponse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kShuttingDown[] =
    "GRPC server is shutting down and has stopped accepting new requests.";

// Waits for a cancel as a model would be told of it.
bool IsCancelled(const ReceivedRequest& received) {
  auto cancelled = std::make_shared<std::promise<void>>();
  auto done = cancelled->get_future();
  received.request.cancel->SetListener([cancelled] { cancelled->set_value(); });
  return done.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
}

ModelInferRequest Request(const std::string& model, const std::string& id) {
  ModelInferRequest request;
  request.set_model_name(model);
  request.set_id(id);
  auto& input = *request.add_inputs();
  input.set_name("text_input");
  input.set_datatype("BYTES");
  input.add_shape(1);
  request.add_raw_input_contents(std::string("\1\0\0\0a", 5));
  return request;
}

class GrpcServerTest : public ::testing::Test {
 protected:
  GrpcServerTest() {
    single_ = &models_.AddModel("single", /*is_decoupled=*/false);
    many_ = &models_.AddModel("many", /*is_decoupled=*/true);
  }

  void SetUp() override { Start({}); }

  void Start(GrpcOptions options) {
    options.address = "127.0.0.1";
    options.port = 0;
    auto server = GrpcServer::Start(models_, options);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    channel_ = ::grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()),
                                     ::grpc::InsecureChannelCredentials());
    stub_ = GRPCInferenceService::NewStub(channel_);
  }

  // ModelInfer on another thread; the status is ready when the call ended.
  std::future<::grpc::Status> Infer(ClientContext& context, const ModelInferRequest& request,
                                    ModelInferResponse& response) {
    return std::async(std::launch::async, [this, &context, request, &response] {
      return stub_->ModelInfer(&context, request, &response);
    });
  }

  // The text of a request's failure, for a call that ends before it reaches a model.
  std::string InferError(const ModelInferRequest& request) {
    ClientContext context;
    ModelInferResponse response;
    const auto status = stub_->ModelInfer(&context, request, &response);
    return std::to_string(status.error_code()) + ": " + status.error_message();
  }

  FakeServer models_;  // outlives the server
  FakeModel* single_;
  FakeModel* many_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<::grpc::Channel> channel_;
  std::unique_ptr<GRPCInferenceService::Stub> stub_;
};

// A stream of the client, with its elements as short texts.
class Stream {
 public:
  explicit Stream(GRPCInferenceService::Stub& stub, const char* strict = nullptr) {
    if (strict != nullptr) context_.AddMetadata("triton_grpc_error", strict);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    stream_ = stub.ModelStreamInfer(&context_);
  }

  void Write(const ModelInferRequest& request) { EXPECT_TRUE(stream_->Write(request)); }

  // "id:text" and a final mark as "+", or "id!error"; "end" after the last element.
  std::string Read() {
    ModelStreamInferResponse message;
    if (!stream_->Read(&message)) return "end";
    last_ = message.infer_response();
    std::string text = last_.id();
    if (!message.error_message().empty()) text += "!" + message.error_message();
    if (last_.raw_output_contents_size() > 0) {
      text += ":" + last_.raw_output_contents(0).substr(sizeof(uint32_t));
    }
    const auto mark = last_.parameters().find("triton_final_response");
    if (mark == last_.parameters().end()) return text + "?";
    return mark->second.bool_param() ? text + "+" : text;
  }

  const ModelInferResponse& last() const { return last_; }
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  ::grpc::Status Finish() { return stream_->Finish(); }

 private:
  ClientContext context_;
  std::unique_ptr<::grpc::ClientReaderWriter<ModelInferRequest, ModelStreamInferResponse>> stream_;
  ModelInferResponse last_;
};

// --- health, metadata, refusals ---

TEST_F(GrpcServerTest, HealthFollowsTheServer) {
  const auto check = [this] {
    ClientContext ready_context, check_context;
    ::inference::ServerReadyResponse ready;
    EXPECT_TRUE(stub_->ServerReady(&ready_context, {}, &ready).ok());
    ::grpc::health::v1::HealthCheckResponse health;
    auto stub = ::grpc::health::v1::Health::NewStub(channel_);
    EXPECT_TRUE(stub->Check(&check_context, {}, &health).ok());
    EXPECT_EQ(health.status() == ::grpc::health::v1::HealthCheckResponse::SERVING, ready.ready());
    return ready.ready();
  };
  EXPECT_TRUE(check());
  models_.set_ready(false);
  EXPECT_FALSE(check());
  ClientContext context;
  ::inference::ServerLiveResponse live;
  EXPECT_TRUE(stub_->ServerLive(&context, {}, &live).ok());
  EXPECT_TRUE(live.live());
}

TEST_F(GrpcServerTest, ModelReadyOfAnUnknownModelIsNotFound) {
  ::inference::ModelReadyRequest request;
  ::inference::ModelReadyResponse response;
  request.set_name("single");
  ClientContext context;
  EXPECT_TRUE(stub_->ModelReady(&context, request, &response).ok());
  EXPECT_TRUE(response.ready());
  request.set_name("nosuch");
  ClientContext unknown;
  const auto status = stub_->ModelReady(&unknown, request, &response);
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "Request for unknown model: 'nosuch' is not found");
}

TEST_F(GrpcServerTest, MetadataConfigAndIndexDescribeTheModels) {
  ClientContext server_context, model_context, config_context, index_context;
  ::inference::ServerMetadataResponse server;
  EXPECT_TRUE(stub_->ServerMetadata(&server_context, {}, &server).ok());
  EXPECT_EQ(server.name() + " " + server.version(), "triton 2.73.0");
  EXPECT_THAT(server.extensions(), ElementsAre("statistics", "parameters"));

  ::inference::ModelMetadataRequest model_request;
  model_request.set_name("many");
  ::inference::ModelMetadataResponse model;
  EXPECT_TRUE(stub_->ModelMetadata(&model_context, model_request, &model).ok());
  EXPECT_THAT(model.versions(), ElementsAre("1"));

  ::inference::ModelConfigRequest config_request;
  config_request.set_name("many");
  ::inference::ModelConfigResponse config;
  EXPECT_TRUE(stub_->ModelConfig(&config_context, config_request, &config).ok());
  EXPECT_EQ(config.config().SerializeAsString(), many_->config().SerializeAsString());

  ::inference::RepositoryIndexResponse index;
  EXPECT_TRUE(stub_->RepositoryIndex(&index_context, {}, &index).ok());
  ASSERT_EQ(index.models_size(), 2);
  EXPECT_EQ(index.models(1).name() + index.models(1).version() + index.models(1).state(),
            "many1READY");
}

TEST_F(GrpcServerTest, WhatIsNotOfferedIsRefusedByName) {
  ClientContext load_context, repository_context, register_context, status_context, region_context;
  ::inference::RepositoryModelLoadRequest load;
  ::inference::RepositoryModelLoadResponse loaded;
  load.set_model_name("single");
  auto status = stub_->RepositoryModelLoad(&load_context, load, &loaded);
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(),
            "explicit model load / unload is not allowed if polling is enabled");
  load.set_repository_name("r");
  status = stub_->RepositoryModelLoad(&repository_context, load, &loaded);
  EXPECT_EQ(status.error_message(), "'repository_name' specification is not supported");

  ::inference::SystemSharedMemoryRegisterResponse registered;
  status = stub_->SystemSharedMemoryRegister(&register_context, {}, &registered);
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::UNIMPLEMENTED);
  ::inference::SystemSharedMemoryStatusResponse regions;
  EXPECT_TRUE(stub_->SystemSharedMemoryStatus(&status_context, {}, &regions).ok());
  EXPECT_EQ(regions.regions_size(), 0);
  ::inference::SystemSharedMemoryStatusRequest region;
  region.set_name("x");
  status = stub_->SystemSharedMemoryStatus(&region_context, region, &regions);
  EXPECT_EQ(status.error_message(), "Unable to find system shared memory region: 'x'");
}

// A call with bytes of our own, to a method that may not exist.
::grpc::Status CallWith(const std::string& bytes, const std::string& path,
                        const std::shared_ptr<::grpc::Channel>& channel) {
  ::grpc::GenericStub stub(channel);
  ClientContext context;
  const ::grpc::Slice slice(bytes);
  const ::grpc::ByteBuffer request(&slice, 1);
  ::grpc::ByteBuffer response;
  std::promise<::grpc::Status> done;
  stub.UnaryCall(&context, path, {}, &request, &response,
                 [&done](::grpc::Status status) { done.set_value(std::move(status)); });
  return done.get_future().get();
}

TEST_F(GrpcServerTest, BytesThatAreNoMessageAreAnErrorOfTheirCall) {
  for (const char* path :
       {"/inference.GRPCInferenceService/ModelReady", "/inference.GRPCInferenceService/ModelInfer",
        "/grpc.health.v1.Health/Check"}) {
    const auto status = CallWith("\x0a\xff\xff", path, channel_);
    EXPECT_EQ(status.error_code(), ::grpc::StatusCode::INTERNAL) << path;
    EXPECT_EQ(status.error_message(), "Unable to parse request");
  }
  for (const char* path : {"/inference.GRPCInferenceService/Nope", "/inference.Other/ServerLive",
                           "/grpc.health.v1.Health/Watch"}) {
    const auto status = CallWith("", path, channel_);
    EXPECT_EQ(status.error_code(), ::grpc::StatusCode::UNIMPLEMENTED) << path;
  }
}

// --- ModelInfer ---

TEST_F(GrpcServerTest, InferCarriesTensorsBothWays) {
  ClientContext context;
  ModelInferResponse response;
  auto status = Infer(context, Request("single", "r1"), response);
  const auto received = single_->Take();
  ASSERT_TRUE(received);
  const auto strings = received->request.inputs.at(0).Strings();
  ASSERT_TRUE(strings.ok());
  EXPECT_THAT(*strings, ElementsAre("a"));
  EXPECT_GT(received->request.received_ns, 0);
  received->RespondText("answer", /*is_final=*/true);
  ASSERT_TRUE(status.get().ok());
  EXPECT_EQ(response.model_name() + response.model_version() + response.id(), "single1r1");
  EXPECT_EQ(response.outputs(0).datatype(), "BYTES");
  EXPECT_EQ(response.raw_output_contents(0), std::string("\6\0\0\0answer", 10));
  EXPECT_EQ(response.parameters_size(), 0);
}

TEST_F(GrpcServerTest, InferErrorsHaveTheirClassAndText) {
  EXPECT_EQ(InferError(Request("nosuch", "")),
            "5: Request for unknown model: 'nosuch' is not found");
  EXPECT_EQ(InferError(Request("many", "")),
            "12: ModelInfer RPC doesn't support models with decoupled transaction policy");
  auto bad = Request("single", "");
  bad.clear_raw_input_contents();
  EXPECT_EQ(InferError(bad),
            "3: unable to find data for input tensor 'text_input' for model 'single' in request.");
}

TEST_F(GrpcServerTest, InferErrorsOfTheModelKeepTheirClass) {
  const struct {
    StatusCode code;
    ::grpc::StatusCode expected;
  } cases[] = {
      {StatusCode::kUnknown, ::grpc::StatusCode::UNKNOWN},
      {StatusCode::kInternal, ::grpc::StatusCode::INTERNAL},
      {StatusCode::kNotFound, ::grpc::StatusCode::NOT_FOUND},
      {StatusCode::kInvalidArgument, ::grpc::StatusCode::INVALID_ARGUMENT},
      {StatusCode::kUnavailable, ::grpc::StatusCode::UNAVAILABLE},
      {StatusCode::kUnimplemented, ::grpc::StatusCode::UNIMPLEMENTED},
      {StatusCode::kAlreadyExists, ::grpc::StatusCode::ALREADY_EXISTS},
      {StatusCode::kCancelled, ::grpc::StatusCode::CANCELLED},
      {StatusCode::kResourceExhausted, ::grpc::StatusCode::UNAVAILABLE},
  };
  for (const auto& c : cases) {
    ClientContext context;
    ModelInferResponse response;
    auto status = Infer(context, Request("single", ""), response);
    single_->Take()->Fail(Status(c.code, "why"));
    const ::grpc::Status got = status.get();
    EXPECT_EQ(got.error_code(), c.expected);
    EXPECT_EQ(got.error_message(), "why");
  }
}

TEST_F(GrpcServerTest, InferOfAModelThatRespondsTwiceIsAnError) {
  ClientContext context;
  ModelInferResponse response;
  auto status = Infer(context, Request("single", ""), response);
  const auto received = single_->Take();
  received->RespondText("a", /*is_final=*/false);
  received->RespondText("b", /*is_final=*/true);
  EXPECT_EQ(status.get().error_message(), "expected a single response, got 2");
}

TEST_F(GrpcServerTest, InferTakesOneAnswerOfADecoupledModelThatAllowsIt) {
  many_->answers_once = true;
  ClientContext context;
  ModelInferResponse response;
  auto status = Infer(context, Request("many", ""), response);
  const auto received = many_->Take();
  received->RespondText("whole", /*is_final=*/false);
  received->Complete();
  EXPECT_TRUE(status.get().ok());
  EXPECT_EQ(response.raw_output_contents(0), std::string("\5\0\0\0whole", 9));
}

TEST_F(GrpcServerTest, InferThatAsksADecoupledModelToStreamIsStopped) {
  many_->answers_once = true;
  ClientContext context;
  ModelInferResponse response;
  auto status = Infer(context, Request("many", ""), response);
  const auto received = many_->Take();
  received->RespondText("a", /*is_final=*/false);
  EXPECT_FALSE(received->request.cancel->cancelled());
  received->RespondText("b", /*is_final=*/false);
  EXPECT_TRUE(received->request.cancel->cancelled());
  received->Fail(Cancelled("request was cancelled"));
  const ::grpc::Status got = status.get();
  EXPECT_EQ(got.error_code(), ::grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(got.error_message(),
            "ModelInfer RPC doesn't support models with decoupled transaction policy");
}

TEST_F(GrpcServerTest, CancelOfInferReachesTheModel) {
  ClientContext context;
  ModelInferResponse response;
  auto status = Infer(context, Request("single", ""), response);
  const auto received = single_->Take();
  EXPECT_FALSE(received->request.cancel->cancelled());
  context.TryCancel();
  EXPECT_EQ(status.get().error_code(), ::grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(IsCancelled(*received));
  received->Fail(Cancelled("request was cancelled"));
}

TEST_F(GrpcServerTest, DeadlineOfInferReachesTheModel) {
  ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  ModelInferResponse response;
  auto status = Infer(context, Request("single", ""), response);
  const auto received = single_->Take();
  EXPECT_EQ(status.get().error_code(), ::grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(IsCancelled(*received));
  received->Fail(Cancelled("request was cancelled"));
}

// --- ModelStreamInfer ---

TEST_F(GrpcServerTest, StreamedResponsesCarryTheFinalMark) {
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

TEST_F(GrpcServerTest, BareCompletionIsSilentUnlessAskedFor) {
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

TEST_F(GrpcServerTest, StreamAnswersPlainModelsInRequestOrderAndDecoupledOnesAsTheyCome) {
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

TEST_F(GrpcServerTest, StreamSurvivesErrorsAndNamesTheRequest) {
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

TEST_F(GrpcServerTest, StrictStreamEndsWithTheFirstErrorOfAnExecution) {
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

TEST_F(GrpcServerTest, StrictModeIsTheWordTrueInLowerCase) {
  Stream stream(*stub_, "True");
  stream.Write(Request("single", "r"));
  single_->Take()->Fail(Internal("why"));
  EXPECT_EQ(stream.Read(), "r!why+");
  stream.HalfClose();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(GrpcServerTest, HalfCloseWaitsForRequestsInProgress) {
  Stream stream(*stub_);
  stream.Write(Request("single", "r"));
  stream.HalfClose();
  single_->Take()->RespondText("late", /*is_final=*/true);
  EXPECT_EQ(stream.Read(), "r:late+");
  EXPECT_EQ(stream.Read(), "end");
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(GrpcServerTest, CancelOfAStreamReachesEveryRequest) {
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

TEST_F(GrpcServerTest, ManyStreamsAndRequestsDoNotMix) {
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

// --- overload, stop, options ---

TEST_F(GrpcServerTest, ClientThatDoesNotReadIsCancelled) {
  Start({.max_pending_responses = 10});
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
  EXPECT_THAT(status.error_message(), HasSubstr("more than 10 responses"));
}

TEST_F(GrpcServerTest, StopLetsRequestsInProgressFinishAndRefusesNewOnes) {
  Stream idle(*stub_);
  idle.Write(Request("nosuch", "x"));
  EXPECT_THAT(idle.Read(), HasSubstr("x!"));  // the stream is open now
  Stream busy(*stub_);
  busy.Write(Request("many", "r"));
  const auto received = many_->Take();
  auto stopped = std::async(std::launch::async, [this] { server_->Stop(/*drain_ms=*/10000); });
  EXPECT_EQ(idle.Read(), "end");
  EXPECT_EQ(idle.Finish().error_message(), kShuttingDown);
  EXPECT_EQ(InferError(Request("single", "")), std::string("14: ") + kShuttingDown);
  busy.Write(Request("many", "new"));
  EXPECT_EQ(busy.Read(), std::string("new!") + kShuttingDown + "?");
  received->RespondText("done", /*is_final=*/true);
  EXPECT_EQ(busy.Read(), "r:done+");
  EXPECT_EQ(busy.Read(), "end");
  EXPECT_EQ(busy.Finish().error_code(), ::grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(GrpcServerTest, StopCancelsWhatOutlastsTheDrainTime) {
  ClientContext context;
  ModelInferResponse response;
  auto status = Infer(context, Request("single", ""), response);
  const auto received = single_->Take();
  auto stopped = std::async(std::launch::async, [this] { server_->Stop(/*drain_ms=*/1); });
  EXPECT_TRUE(IsCancelled(*received));
  received->Fail(Cancelled("request was cancelled"));
  EXPECT_FALSE(status.get().ok());
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(GrpcServerTest, RequestsLargerThanTheLimitAreRefused) {
  Start({.max_message_bytes = 1000});
  auto request = Request("single", "");
  request.set_raw_input_contents(0, std::string(2000, 'x'));
  EXPECT_THAT(InferError(request), HasSubstr("8: "));  // RESOURCE_EXHAUSTED, by gRPC itself
}

TEST_F(GrpcServerTest, PortsThatAreTakenAreAnErrorWithARemedy) {
  const auto second = GrpcServer::Start(models_, {.address = "127.0.0.1", .port = server_->port()});
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("--grpc-port"));
}

TEST_F(GrpcServerTest, OptionsOutOfRangeAreNamed) {
  const auto server = GrpcServer::Start(models_, {.port = 70000});
  EXPECT_EQ(server.status().ToString(),
            "INVALID_ARGUMENT: grpc-port: got 70000, allowed are 0 to 65535");
}

}  // namespace
}  // namespace inflight::kserve_grpc
