// SPDX-License-Identifier: Apache-2.0
// What the tests of the front end share: a real server on a free port over models that the test
// answers by hand, and a client of streams.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "grpc_service.grpc.pb.h"
#include "protocol/kserve/grpc/fake_server.h"
#include "protocol/kserve/grpc/grpc_server.h"

namespace inflight::kserve_grpc {

inline constexpr char kShuttingDown[] =
    "GRPC server is shutting down and has stopped accepting new requests.";

// Waits for a cancel as a model would be told of it.
inline bool IsCancelled(const ReceivedRequest& received) {
  auto cancelled = std::make_shared<std::promise<void>>();
  auto done = cancelled->get_future();
  received.request.cancel->SetListener([cancelled] { cancelled->set_value(); });
  return done.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
}

inline ::inference::ModelInferRequest Request(const std::string& model, const std::string& id) {
  ::inference::ModelInferRequest request;
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
    stub_ = ::inference::GRPCInferenceService::NewStub(channel_);
  }

  // ModelInfer on another thread; the status is ready when the call ended.
  std::future<::grpc::Status> Infer(::grpc::ClientContext& context,
                                    const ::inference::ModelInferRequest& request,
                                    ::inference::ModelInferResponse& response) {
    return std::async(std::launch::async, [this, &context, request, &response] {
      return stub_->ModelInfer(&context, request, &response);
    });
  }

  // The text of a request's failure, for a call that ends before it reaches a model.
  std::string InferError(const ::inference::ModelInferRequest& request) {
    ::grpc::ClientContext context;
    ::inference::ModelInferResponse response;
    const auto status = stub_->ModelInfer(&context, request, &response);
    return std::to_string(status.error_code()) + ": " + status.error_message();
  }

  FakeServer models_;  // outlives the server
  FakeModel* single_;
  FakeModel* many_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<::grpc::Channel> channel_;
  std::unique_ptr<::inference::GRPCInferenceService::Stub> stub_;
};

// A stream of the client, with its elements as short texts.
class Stream {
 public:
  explicit Stream(::inference::GRPCInferenceService::Stub& stub, const char* strict = nullptr) {
    if (strict != nullptr) context_.AddMetadata("triton_grpc_error", strict);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    stream_ = stub.ModelStreamInfer(&context_);
  }

  void Write(const ::inference::ModelInferRequest& request) {
    EXPECT_TRUE(stream_->Write(request));
  }

  // "id:text" and a final mark as "+", or "id!error"; "end" after the last element.
  std::string Read() {
    ::inference::ModelStreamInferResponse message;
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

  const ::inference::ModelInferResponse& last() const { return last_; }
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  ::grpc::Status Finish() { return stream_->Finish(); }

 private:
  ::grpc::ClientContext context_;
  std::unique_ptr<::grpc::ClientReaderWriter<::inference::ModelInferRequest,
                                             ::inference::ModelStreamInferResponse>>
      stream_;
  ::inference::ModelInferResponse last_;
};

}  // namespace inflight::kserve_grpc
