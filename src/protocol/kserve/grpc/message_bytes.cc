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

class Parser {
 public:
  Parser(::grpc::ByteBuffer& bytes, int64_t max_bytes, MemoryCharge& charge, Message& out,
         const IsWanted& is_wanted)
      : bytes_(bytes), max_bytes_(max_bytes), charge_(charge), out_(out), is_wanted_(is_wanted) {}

  ParseFailure Parse() {
    MessageReader reader(&bytes_);
    if (!reader.status().ok()) return ParseFailure::kNoMessage;  // the call ended without one
    switch (reader.compression()) {
      case GRPC_COMPRESS_GZIP:
        return ParsePacked(InflateStream::Wrapper::kGzip);
      case GRPC_COMPRESS_DEFLATE:
        return ParsePacked(InflateStream::Wrapper::kZlib);
      default:
        return ParsePlain(reader);
    }
  }

 private:
  ParseFailure ParsePlain(MessageReader& reader) {
    const size_t num_bytes = bytes_.Length();
    if (num_bytes > kBytesOfFewParts) {
      MessageReader looked_through(&bytes_);
      const ParseFailure failure = Look(looked_through, num_bytes);
      if (failure != ParseFailure::kNone || !wants_) return failure;
    }
    return out_.ParseFromZeroCopyStream(&reader) ? ParseFailure::kNone : ParseFailure::kNoMessage;
  }

  ParseFailure ParsePacked(InflateStream::Wrapper wrapper) {
    MessageReader packed(&bytes_);
    InflateStream looked_through(packed, wrapper, max_bytes_);
    const ParseFailure failure = Look(looked_through, 0);
    if (looked_through.end() == InflateStream::End::kTooLarge) return ParseFailure::kTooLarge;
    if (looked_through.end() == InflateStream::End::kBroken) return ParseFailure::kBroken;
    if (failure != ParseFailure::kNone || !wants_) return failure;
    MessageReader again(&bytes_);
    InflateStream unpacked(again, wrapper, max_bytes_);
    const bool is_message = out_.ParseFromZeroCopyStream(&unpacked);
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

  // `num_bytes`: of the message; 0 = as many as are read. Sets wants_.
  ParseFailure Look(google::protobuf::io::ZeroCopyInputStream& stream, size_t num_bytes) {
    const PartCount parts = CountParts(stream, *out_.GetDescriptor());
    if (parts.IsTooLarge()) return ParseFailure::kManyParts;
    wants_ = !is_wanted_ || is_wanted_(parts);
    if (!wants_) return ParseFailure::kNone;
    if (num_bytes == 0) num_bytes = static_cast<size_t>(stream.ByteCount());
    const Status room = charge_.Resize(num_bytes + static_cast<size_t>(parts.num_bytes()));
    return room.ok() ? ParseFailure::kNone : ParseFailure::kNoRoom;
  }

  ::grpc::ByteBuffer& bytes_;
  const int64_t max_bytes_;
  MemoryCharge& charge_;
  Message& out_;
  const IsWanted& is_wanted_;
  bool wants_ = true;
};

}  // namespace

ParseFailure ParseMessage(::grpc::ByteBuffer& bytes, int64_t max_bytes, MemoryCharge& charge,
                          Message& out, const IsWanted& is_wanted) {
  const ParseFailure failure = Parser(bytes, max_bytes, charge, out, is_wanted).Parse();
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
    case ParseFailure::kNoRoom:
      return {StatusCode::RESOURCE_EXHAUSTED,
              "the requests under way leave no room for this one; try again later, or raise "
              "--request-memory-byte-size"};
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
