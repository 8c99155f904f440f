// SPDX-License-Identifier: Apache-2.0
// ServerReflectionInfo of a real gRPC server: order, errors, ends, bounds.
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <string>

#include "protocol/kserve/grpc/grpc_test_fixture.h"
#include "reflection.grpc.pb.h"

namespace inflight::kserve_grpc {
namespace {

using ::grpc::reflection::v1::ServerReflection;
using ::grpc::reflection::v1::ServerReflectionRequest;
using ::grpc::reflection::v1::ServerReflectionResponse;
using ::testing::HasSubstr;

// A stream of the client, which asks where names are.
class ReflectionStream {
 public:
  explicit ReflectionStream(const std::shared_ptr<::grpc::Channel>& channel)
      : stub_(ServerReflection::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    stream_ = stub_->ServerReflectionInfo(&context_);
  }

  void AskFor(const std::string& symbol) {
    ServerReflectionRequest request;
    request.set_file_containing_symbol(symbol);
    EXPECT_TRUE(stream_->Write(request));
  }
  void AskNothing() { EXPECT_TRUE(stream_->Write({})); }

  // "symbol: number of files" or "symbol! code"; "end" after the last.
  std::string Read() {
    ServerReflectionResponse response;
    if (!stream_->Read(&response)) return "end";
    const std::string symbol = response.original_request().file_containing_symbol();
    if (response.has_error_response()) {
      return symbol + "! " + std::to_string(response.error_response().error_code());
    }
    const auto& files = response.file_descriptor_response().file_descriptor_proto();
    return symbol + ": " + std::to_string(files.size());
  }

  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  ::grpc::Status Finish() { return stream_->Finish(); }

 private:
  ::grpc::ClientContext context_;
  std::unique_ptr<ServerReflection::Stub> stub_;
  std::unique_ptr<::grpc::ClientReaderWriter<ServerReflectionRequest, ServerReflectionResponse>>
      stream_;
};

class ReflectionCallTest : public GrpcServerTest {
 protected:
  void SetUp() override { Start({.memory = memory_, .with_reflection = true}); }

  const std::shared_ptr<MemoryAccount> memory_ = MemoryAccount::Make({});
};

TEST_F(GrpcServerTest, ReflectionIsNotOfferedUnlessItIsAskedFor) {
  ReflectionStream stream(channel_);
  EXPECT_EQ(stream.Read(), "end");
  const auto status = stream.Finish();
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(status.error_message(), "");
}

TEST_F(ReflectionCallTest, RequestsAreAnsweredInTheirOrderUntilTheClientIsDone) {
  ReflectionStream stream(channel_);
  stream.AskFor("inference.ModelInferRequest");
  stream.AskFor("nope");
  stream.AskNothing();
  stream.AskFor("grpc.health.v1.Health");
  stream.HalfClose();
  EXPECT_EQ(stream.Read(), "inference.ModelInferRequest: 2");
  EXPECT_EQ(stream.Read(), "nope! 5");
  EXPECT_EQ(stream.Read(), "! 3");
  EXPECT_EQ(stream.Read(), "grpc.health.v1.Health: 1");
  EXPECT_EQ(stream.Read(), "end");
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(ReflectionCallTest, ARequestThatIsTooLargeEndsTheStream) {
  ReflectionStream stream(channel_);
  stream.AskFor(std::string(4000, 'x'));
  EXPECT_THAT(stream.Read(), HasSubstr("x! 5"));
  for (const size_t num_bytes : {4096, 1 << 20}) {
    ReflectionStream large(channel_);
    large.AskFor(std::string(num_bytes, 'x'));
    EXPECT_EQ(large.Read(), "end");
    const auto status = large.Finish();
    EXPECT_EQ(status.error_code(), ::grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(status.error_message(), "a request of server reflection has at most 4096 bytes");
  }
}

// All of them would take 15 MB.
TEST_F(ReflectionCallTest, ForAClientThatDoesNotReadOneResponseWaits) {
  constexpr int kRequests = 300;
  ReflectionStream stream(channel_);
  for (int i = 0; i < kRequests; ++i) stream.AskFor("inference.ModelInferRequest");
  stream.HalfClose();
  size_t most = 0;
  while (most == 0) most = memory_->used_bytes();  // until its window is full, and one waits
  for (int i = 0; i < kRequests; ++i) {
    most = std::max(most, memory_->used_bytes());
    EXPECT_EQ(stream.Read(), "inference.ModelInferRequest: 2");
  }
  EXPECT_LT(most, size_t{512} << 10);
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(ReflectionCallTest, StreamsAreCallsThatAreBounded) {
  Start({.max_calls = 1, .with_reflection = true});
  ReflectionStream first(channel_);
  first.AskFor("nope");
  EXPECT_EQ(first.Read(), "nope! 5");
  ReflectionStream second(channel_);
  EXPECT_EQ(second.Finish().error_code(), ::grpc::StatusCode::UNAVAILABLE);
  first.HalfClose();
  EXPECT_TRUE(first.Finish().ok());
  ReflectionStream third(channel_);
  third.AskFor("nope");
  EXPECT_EQ(third.Read(), "nope! 5");
}

TEST_F(ReflectionCallTest, AClientThatIsGoneLeavesNothing) {
  {
    ReflectionStream stream(channel_);
    stream.AskFor("inference.ModelInferRequest");
    stream.Cancel();
    EXPECT_EQ(stream.Finish().error_code(), ::grpc::StatusCode::CANCELLED);
  }
  channel_.reset();
  stub_.reset();
  server_->Stop(/*drain_ms=*/10000);
  EXPECT_EQ(memory_->used_bytes(), 0U);
}

TEST_F(ReflectionCallTest, AStopEndsIdleStreams) {
  ReflectionStream idle(channel_);
  idle.AskFor("nope");
  EXPECT_EQ(idle.Read(), "nope! 5");
  auto stopped = std::async(std::launch::async, [this] { server_->Stop(/*drain_ms=*/10000); });
  EXPECT_EQ(idle.Read(), "end");
  const auto status = idle.Finish();
  EXPECT_EQ(status.error_code(), ::grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), kShuttingDown);
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

}  // namespace
}  // namespace inflight::kserve_grpc
