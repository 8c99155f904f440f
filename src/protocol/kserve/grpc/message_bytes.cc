// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/message_bytes.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <string>

#include "protocol/kserve/grpc/inflate_stream.h"
#include "protocol/kserve/grpc/part_count.h"

namespace inflight::kserve_grpc {
namespace {

using google::protobuf::Message;

// gRPC's C++ classes do not tell how a buffer's bytes are compressed; the reader's C structure, a
// public one, does.
class MessageReader final : public ::grpc::ProtoBufferReader {
 public:
  using ProtoBufferReader::ProtoBufferReader;

  // The buffer is there: status() is OK.
  grpc_compression_algorithm compression() { return reader()->buffer_in->data.raw.compression; }
};

bool HasFewParts(google::protobuf::io::ZeroCopyInputStream& bytes, const Message& message) {
  return kserve_grpc::HasFewParts(bytes, *message.GetDescriptor());
}

ParseFailure ParsePacked(::grpc::ByteBuffer& bytes, InflateStream::Wrapper wrapper,
                         int64_t max_bytes, Message& out) {
  MessageReader packed(&bytes);
  InflateStream looked_through(packed, wrapper, max_bytes);
  if (!HasFewParts(looked_through, out)) return ParseFailure::kManyParts;
  if (looked_through.end() == InflateStream::End::kTooLarge) return ParseFailure::kTooLarge;
  MessageReader again(&bytes);
  InflateStream unpacked(again, wrapper, max_bytes);
  const bool is_message = out.ParseFromZeroCopyStream(&unpacked);
  switch (unpacked.end()) {
    case InflateStream::End::kBroken:
      return ParseFailure::kBroken;
    case InflateStream::End::kTooLarge:
      return ParseFailure::kTooLarge;
    case InflateStream::End::kComplete:
      return is_message ? ParseFailure::kNone : ParseFailure::kNoMessage;
    case InflateStream::End::kOpen:
      return ParseFailure::kNoMessage;  // seen before all of it was unpacked
  }
  return ParseFailure::kNoMessage;
}

ParseFailure Parse(::grpc::ByteBuffer& bytes, int64_t max_bytes, Message& out) {
  MessageReader reader(&bytes);
  if (!reader.status().ok()) return ParseFailure::kNoMessage;  // the call ended without one
  switch (reader.compression()) {
    case GRPC_COMPRESS_GZIP:
      return ParsePacked(bytes, InflateStream::Wrapper::kGzip, max_bytes, out);
    case GRPC_COMPRESS_DEFLATE:
      return ParsePacked(bytes, InflateStream::Wrapper::kZlib, max_bytes, out);
    default:
      if (bytes.Length() > kBytesOfFewParts) {
        MessageReader looked_through(&bytes);
        if (!HasFewParts(looked_through, out)) return ParseFailure::kManyParts;
      }
      return out.ParseFromZeroCopyStream(&reader) ? ParseFailure::kNone : ParseFailure::kNoMessage;
  }
}

}  // namespace

ParseFailure ParseMessage(::grpc::ByteBuffer& bytes, int64_t max_bytes, Message& out) {
  const ParseFailure failure = Parse(bytes, max_bytes, out);
  bytes.Clear();
  return failure;
}

::grpc::Status ToGrpcStatus(ParseFailure failure, int64_t max_bytes) {
  using ::grpc::StatusCode;
  switch (failure) {
    case ParseFailure::kNone:
      return ::grpc::Status::OK;
    case ParseFailure::kNoMessage:
      return {StatusCode::INTERNAL, "Unable to parse request"};
    case ParseFailure::kBroken:
      return {StatusCode::INTERNAL,
              "Unable to decompress request: the data is no complete stream of the kind that "
              "grpc-encoding names (gzip, or deflate with zlib's header)"};
    case ParseFailure::kManyParts:
      return {StatusCode::INVALID_ARGUMENT,
              "request has more than " + std::to_string(kMaxSubmessages) +
                  " tensors and parameters, or " + std::to_string(kMaxTexts) +
                  " elements in bytes_contents; send elements in raw_input_contents"};
    case ParseFailure::kTooLarge: {
      const std::string limit = std::to_string(max_bytes);
      return {StatusCode::RESOURCE_EXHAUSTED,
              "Received message larger than max (more than " + limit + " unpacked vs. " + limit +
                  "); send less at a time, or raise --grpc-max-input-size"};
    }
  }
  return {StatusCode::INTERNAL, "Unable to parse request"};
}

}  // namespace inflight::kserve_grpc
