// SPDX-License-Identifier: Apache-2.0
// Compressed messages of a real gRPC server: what arrives is what was packed, or an error.
#include "protocol/kserve/grpc/message_bytes.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "health.grpc.pb.h"
#include "protocol/kserve/grpc/grpc_test_fixture.h"
#include "protocol/kserve/grpc/test_packing.h"

namespace inflight::kserve_grpc {
namespace {

using ::grpc::ByteBuffer;
using ::grpc::ClientContext;
using ::inference::ModelStreamInferResponse;
using Wrapper = InflateStream::Wrapper;

constexpr char kInfer[] = "/inference.GRPCInferenceService/ModelInfer";
constexpr char kStream[] = "/inference.GRPCInferenceService/ModelStreamInfer";
constexpr char kModelReady[] = "/inference.GRPCInferenceService/ModelReady";
constexpr char kLoad[] = "/inference.GRPCInferenceService/RepositoryModelLoad";
constexpr char kCheck[] = "/grpc.health.v1.Health/Check";

constexpr char kNoMessage[] = "13: Unable to parse request";
constexpr char kBroken[] =
    "13: Unable to decompress request: the data is no complete stream of the kind that "
    "grpc-encoding names (gzip, or deflate with zlib's header)";

std::string TooLarge(int max_bytes) {
  const std::string limit = std::to_string(max_bytes);
  return "8: Received message larger than max (more than " + limit + " unpacked vs. " + limit +
         "); send less at a time, or raise --grpc-max-input-size";
}

// The bytes of a message, and how they are compressed, as the header of the call names it.
struct Packed {
  std::string bytes;
  grpc_compression_algorithm algorithm;
};

const std::pair<Wrapper, grpc_compression_algorithm> kKinds[] = {
    {Wrapper::kGzip, GRPC_COMPRESS_GZIP}, {Wrapper::kZlib, GRPC_COMPRESS_DEFLATE}};

std::vector<Packed> PackedBoth(const std::string& message) {
  std::vector<Packed> both;
  for (const auto& [wrapper, algorithm] : kKinds)
    both.push_back({Pack(message, wrapper), algorithm});
  return both;
}

// A client's gRPC sends a buffer that says that it is compressed as it is.
class Marker final : public ::grpc::ProtoBufferReader {
 public:
  using ProtoBufferReader::ProtoBufferReader;
  void Mark(grpc_compression_algorithm algorithm) {
    reader()->buffer_in->data.raw.compression = algorithm;
  }
};

ByteBuffer ToBuffer(const Packed& packed) {
  const ::grpc::Slice slice(packed.bytes);
  ByteBuffer buffer(&slice, 1);
  Marker(&buffer).Mark(packed.algorithm);
  return buffer;
}

std::string ToText(const ::grpc::Status& status) {
  return std::to_string(status.error_code()) + ": " + status.error_message();
}

template <typename Response>
bool ParseFrom(ByteBuffer& bytes, Response& response) {
  return ::grpc::SerializationTraits<Response>::Deserialize(&bytes, &response).ok();
}

class MessageBytesTest : public GrpcServerTest {
 protected:
  // The status of a unary call; `response` receives its message.
  template <typename Response>
  ::grpc::Status Call(const char* path, const Packed& packed, Response& response) {
    ::grpc::GenericStub stub(channel_);
    ClientContext context;
    context.set_compression_algorithm(packed.algorithm);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const ByteBuffer request = ToBuffer(packed);
    ByteBuffer bytes;
    std::promise<::grpc::Status> done;
    stub.UnaryCall(&context, path, {}, &request, &bytes,
                   [&done](::grpc::Status status) { done.set_value(std::move(status)); });
    const ::grpc::Status status = done.get_future().get();
    if (status.ok()) {
      EXPECT_TRUE(ParseFrom(bytes, response));
    }
    return status;
  }

  std::string Error(const char* path, const Packed& packed) {
    if (path == kStream) {
      PackedStream stream(channel_, packed.algorithm);
      stream.Write(packed);
      return ToText(stream.Finish());
    }
    ::inference::ModelInferResponse response;  // not read
    return ToText(Call(path, packed, response));
  }

  // A stream whose requests were packed by the test.
  class PackedStream {
   public:
    PackedStream(const std::shared_ptr<::grpc::Channel>& channel,
                 grpc_compression_algorithm algorithm)
        : stub_(channel) {
      context_.set_compression_algorithm(algorithm);
      context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
      stream_ = stub_.PrepareCall(&context_, kStream, &queue_);
      stream_->StartCall(nullptr);
      EXPECT_TRUE(Wait());
    }

    void Write(const Packed& packed) {
      stream_->Write(ToBuffer(packed), nullptr);
      EXPECT_TRUE(Wait());
    }
    void HalfClose() {
      stream_->WritesDone(nullptr);
      EXPECT_TRUE(Wait());
    }
    // False: there are no more.
    bool Read(ModelStreamInferResponse& response) {
      ByteBuffer bytes;
      stream_->Read(&bytes, nullptr);
      if (!Wait()) return false;
      EXPECT_TRUE(ParseFrom(bytes, response));
      return true;
    }
    // Once there are no more responses.
    ::grpc::Status Finish() {
      ModelStreamInferResponse response;
      EXPECT_FALSE(Read(response)) << response.ShortDebugString();
      ::grpc::Status status;
      stream_->Finish(&status, nullptr);
      EXPECT_TRUE(Wait());
      return status;
    }

   private:
    bool Wait() {
      void* tag = nullptr;
      bool ok = false;
      EXPECT_TRUE(queue_.Next(&tag, &ok));
      return ok;
    }

    ::grpc::GenericStub stub_;
    ClientContext context_;
    ::grpc::CompletionQueue queue_;
    std::unique_ptr<::grpc::GenericClientAsyncReaderWriter> stream_;
  };
};

// What all requests begin with: a text, of most a model's name, in field 1.
std::string FieldOne(const std::string& text) {
  ::inference::ModelReadyRequest request;
  request.set_name(text);
  return request.SerializeAsString();
}

TEST_F(MessageBytesTest, UnaryCallsTakeCompressedRequests) {
  for (const Packed& packed : PackedBoth(FieldOne("single"))) {
    ::inference::ModelReadyResponse ready;
    EXPECT_EQ(ToText(Call(kModelReady, packed, ready)), "0: ");
    EXPECT_TRUE(ready.ready());
    ::grpc::health::v1::HealthCheckResponse health;
    EXPECT_EQ(ToText(Call(kCheck, packed, health)), "0: ");
    EXPECT_EQ(health.status(), ::grpc::health::v1::HealthCheckResponse::SERVING);
  }
  for (const Packed& packed : PackedBoth(FieldOne("nosuch"))) {
    ::inference::ModelReadyResponse ready;
    EXPECT_EQ(ToText(Call(kModelReady, packed, ready)), "0: ");
    EXPECT_FALSE(ready.ready());
  }
}

TEST_F(MessageBytesTest, InferTakesCompressedRequests) {
  for (const Packed& packed : PackedBoth(Request("single", "r").SerializeAsString())) {
    ::inference::ModelInferResponse response;
    auto status =
        std::async(std::launch::async, [&] { return ToText(Call(kInfer, packed, response)); });
    const auto received = single_->Take();
    ASSERT_TRUE(received);
    EXPECT_EQ(received->request.inputs.at(0).Strings()->at(0), "a");
    received->RespondText("answer", /*is_final=*/true);
    EXPECT_EQ(status.get(), "0: ");
    EXPECT_EQ(response.id() + response.raw_output_contents(0).substr(4), "ranswer");
  }
}

TEST_F(MessageBytesTest, StreamsTakeCompressedRequestsBesidePlainOnes) {
  for (const auto& [wrapper, algorithm] : kKinds) {
    PackedStream stream(channel_, algorithm);
    stream.Write({Pack(Request("single", "packed").SerializeAsString(), wrapper), algorithm});
    stream.Write({Request("single", "plain").SerializeAsString(), GRPC_COMPRESS_NONE});
    stream.HalfClose();
    for (const char* id : {"packed", "plain"}) {
      const auto received = single_->Take();
      ASSERT_TRUE(received);
      EXPECT_EQ(received->request.id, id);
      EXPECT_EQ(received->request.inputs.at(0).Strings()->at(0), "a");
      received->Complete();
      ModelStreamInferResponse response;
      ASSERT_TRUE(stream.Read(response));
      EXPECT_EQ(response.infer_response().id() + response.error_message(), id);
    }
    EXPECT_EQ(ToText(stream.Finish()), "0: ");
  }
}

TEST_F(MessageBytesTest, TheLimitIsThatOfTheUnpackedMessage) {
  Start({.max_message_bytes = 1000});
  const std::string name(997, 'x');  // with tag and length: 1000 bytes
  for (const Packed& packed : PackedBoth(FieldOne(name))) {
    EXPECT_EQ(Error(kModelReady, packed), "0: ");
  }
  for (const char* path : {kModelReady, kInfer, kStream, kLoad, kCheck}) {
    for (const Packed& packed : PackedBoth(FieldOne(name + "y"))) {
      EXPECT_EQ(Error(path, packed), TooLarge(1000)) << path;
    }
  }
}

// A GiB in a MiB, as a field that none of the messages has. Resident memory: tests/load.
TEST_F(MessageBytesTest, BombsAreRefused) {
  Start({.max_message_bytes = 4 << 20});
  std::string start = "\xaa\x06";  // tag of field 101, length-delimited
  for (uint64_t length = uint64_t{1} << 30; length > 0; length >>= 7) {
    start += static_cast<char>((length & 127) | (length > 127 ? 128 : 0));
  }
  const Packed bomb = {Bomb(start, 1024), GRPC_COMPRESS_GZIP};
  for (const char* path : {kModelReady, kInfer, kStream, kLoad, kCheck}) {
    EXPECT_EQ(Error(path, bomb), TooLarge(4 << 20)) << path;
  }
}

// Two bytes each, some hundred as objects.
TEST_F(MessageBytesTest, ManyEmptyTensorsAreRefused) {
  std::string inputs;
  for (int i = 0; i < 1'000'000; ++i) inputs += std::string("\x2a\0", 2);
  const std::string error = "3: request has more than 65536 tensors and parameters";
  std::vector<Packed> all = PackedBoth(inputs);
  all.push_back({inputs, GRPC_COMPRESS_NONE});
  for (const Packed& packed : all) {
    for (const char* path : {kInfer, kStream}) {
      EXPECT_EQ(Error(path, packed).substr(0, error.size()), error) << path;
    }
  }
}

TEST_F(MessageBytesTest, BrokenDataIsAnErrorOfItsCall) {
  const std::string message = FieldOne("single");
  const std::string gzip = Pack(message, Wrapper::kGzip), zlib = Pack(message, Wrapper::kZlib);
  for (const char* path : {kModelReady, kInfer, kStream, kLoad, kCheck}) {
    for (const Packed& packed :
         {Packed{"garbage", GRPC_COMPRESS_GZIP}, Packed{zlib, GRPC_COMPRESS_GZIP},
          Packed{gzip, GRPC_COMPRESS_DEFLATE}, Packed{gzip + gzip, GRPC_COMPRESS_GZIP},
          Packed{gzip.substr(0, gzip.size() - 1), GRPC_COMPRESS_GZIP}}) {
      EXPECT_EQ(Error(path, packed), kBroken) << path;
    }
  }
}

TEST_F(MessageBytesTest, WhatUnpacksToNoMessageIsToldAsWhatIsNone) {
  for (const Packed& packed : PackedBoth("\x0a\xff\xff")) {
    for (const char* path : {kModelReady, kInfer, kLoad, kCheck}) {
      EXPECT_EQ(Error(path, packed), kNoMessage) << path;
    }
    EXPECT_EQ(Error(kStream, packed), "0: ");  // as a half-close
  }
}

TEST_F(MessageBytesTest, AStreamThatCannotBeUnpackedCancelsItsRequests) {
  PackedStream stream(channel_, GRPC_COMPRESS_GZIP);
  stream.Write({Request("many", "r").SerializeAsString(), GRPC_COMPRESS_NONE});
  const auto received = many_->Take();
  ASSERT_TRUE(received);
  stream.Write({"garbage", GRPC_COMPRESS_GZIP});
  EXPECT_EQ(ToText(stream.Finish()), kBroken);
  EXPECT_TRUE(IsCancelled(*received));
  received->Fail(Cancelled("request was cancelled"));
}

TEST_F(MessageBytesTest, ACallThatEndsWithoutAMessageIsAnError) {
  for (const char* path : {kModelReady, kInfer, kLoad, kCheck}) {
    ::grpc::GenericStub stub(channel_);
    ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    ::grpc::CompletionQueue queue;
    const auto wait = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      EXPECT_TRUE(queue.Next(&tag, &ok));
    };
    const auto call = stub.PrepareCall(&context, path, &queue);
    call->StartCall(nullptr);
    wait();
    call->WritesDone(nullptr);
    wait();
    ::grpc::Status status;
    call->Finish(&status, nullptr);
    wait();
    EXPECT_EQ(ToText(status), kNoMessage) << path;
  }
}

}  // namespace
}  // namespace inflight::kserve_grpc
