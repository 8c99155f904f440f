// SPDX-License-Identifier: Apache-2.0
// Health, metadata, ModelInfer, stop and options of a real gRPC server.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>

#include <fstream>
#include <set>
#include <string>

#include "health.grpc.pb.h"
#include "protocol/kserve/grpc/grpc_test_fixture.h"
#include "protocol/kserve/grpc/inference_service.h"

namespace inflight::kserve_grpc {
namespace {

using ::grpc::ClientContext;
using ::inference::ModelInferResponse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

TEST_F(GrpcServerTest, AnUnknownModelIsNotReady) {
  ::inference::ModelReadyRequest request;
  ::inference::ModelReadyResponse response;
  request.set_name("single");
  ClientContext context;
  EXPECT_TRUE(stub_->ModelReady(&context, request, &response).ok());
  EXPECT_TRUE(response.ready());
  request.set_name("nosuch");
  ClientContext unknown;
  EXPECT_TRUE(stub_->ModelReady(&unknown, request, &response).ok());
  EXPECT_FALSE(response.ready());
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
  EXPECT_EQ(config.config().SerializeAsString(), many_->complete_config().SerializeAsString());

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
  (*load.mutable_parameters())["config"].set_int64_param(5);
  auto status = stub_->RepositoryModelLoad(&load_context, load, &loaded);
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "invalid value type for load parameter 'config', expected string_param.");
  load.set_repository_name("r");
  status = stub_->RepositoryModelLoad(&repository_context, load, &loaded);
  EXPECT_EQ(status.error_message(), "'repository_name' specification is not supported");

  ::inference::SystemSharedMemoryRegisterResponse registered;
  status = stub_->SystemSharedMemoryRegister(&register_context, {}, &registered);
  EXPECT_EQ(status.error_message(), "Unable to open shared memory region: ''");
  ::inference::SystemSharedMemoryStatusResponse regions;
  EXPECT_TRUE(stub_->SystemSharedMemoryStatus(&status_context, {}, &regions).ok());
  EXPECT_EQ(regions.regions_size(), 0);
  ::inference::SystemSharedMemoryStatusRequest region;
  region.set_name("x");
  status = stub_->SystemSharedMemoryStatus(&region_context, region, &regions);
  EXPECT_EQ(status.error_message(), "Unable to find system shared memory region: 'x'");
}

TEST_F(GrpcServerTest, MemoryOfAGpuIsRegisteredAndForgotten) {
  const auto register_as = [&](const std::string& name, const std::string& handle) {
    ClientContext context;
    ::inference::CudaSharedMemoryRegisterRequest request;
    request.set_name(name);
    request.set_raw_handle(handle);
    request.set_device_id(2);
    request.set_byte_size(8);
    ::inference::CudaSharedMemoryRegisterResponse response;
    return stub_->CudaSharedMemoryRegister(&context, request, &response).error_message();
  };
  const auto regions = [&] {
    ClientContext context;
    ::inference::CudaSharedMemoryStatusResponse response;
    EXPECT_TRUE(stub_->CudaSharedMemoryStatus(&context, {}, &response).ok());
    return response.regions();
  };
  EXPECT_EQ(register_as("g", "x"),
            "failed to register shared memory region 'g': failed to open CUDA IPC handle: invalid "
            "argument");
  EXPECT_EQ(register_as("g", "h"), "");
  EXPECT_EQ(register_as("g", "h"), "shared memory region 'g' already in manager");
  ASSERT_EQ(regions().size(), 1U);
  EXPECT_EQ(regions().at("g").device_id(), 2U);
  EXPECT_EQ(regions().at("g").byte_size(), 8U);
  ClientContext context;
  ::inference::CudaSharedMemoryUnregisterRequest request;
  request.set_name("g");
  ::inference::CudaSharedMemoryUnregisterResponse response;
  EXPECT_TRUE(stub_->CudaSharedMemoryUnregister(&context, request, &response).ok());
  EXPECT_TRUE(regions().empty());
}

// --- the table of methods ---

TEST(GrpcMethodsTest, AllOfTheServiceAndOfTheStandardOnesAreAnswered) {
  std::set<std::string> expected = {
      "/grpc.health.v1.Health/Check", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"};
  const auto* file = ::inference::ServerLiveRequest::descriptor()->file();
  const auto* service = file->FindServiceByName("GRPCInferenceService");
  ASSERT_NE(service, nullptr);
  for (int i = 0; i < service->method_count(); ++i) {
    expected.insert("/" + service->full_name() + "/" + service->method(i)->name());
  }
  const auto paths = InferenceService::Paths();
  EXPECT_EQ(std::set<std::string>(paths.begin(), paths.end()), expected);
  EXPECT_EQ(paths.size(), expected.size());
}

TEST(GrpcMethodsTest, TheDocumentListsTheSame) {
  std::set<std::string> documented;
  std::ifstream page(INFLIGHT_GRPC_PAGE);
  for (std::string line; std::getline(page, line) && !line.starts_with("## ");) {
    if (!line.starts_with("| `")) continue;
    const std::string cell = line.substr(0, line.find(" | "));
    for (size_t at = cell.find('`'); at != cell.npos; at = cell.find('`', at + 1)) {
      const size_t end = cell.find('`', at + 1);
      const std::string name = cell.substr(at + 1, end - at - 1);
      if (name.find('.') == name.npos) documented.insert(name);
      at = end;
    }
  }
  std::set<std::string> methods;
  for (const std::string_view path : InferenceService::Paths()) {
    methods.emplace(path.substr(path.rfind('/') + 1));
  }
  EXPECT_EQ(documented, methods);
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

// --- stop, options ---

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
