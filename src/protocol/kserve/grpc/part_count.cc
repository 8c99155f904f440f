// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/part_count.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

namespace inflight::kserve_grpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

class PartCount {
 public:
  explicit PartCount(google::protobuf::io::ZeroCopyInputStream& bytes) : in_(&bytes) {}

  bool IsTooLarge() const { return num_submessages_ > kMaxSubmessages || num_texts_ > kMaxTexts; }

  // False where nothing is left to be counted: there are too many already, or no such message.
  bool Count(const Descriptor& type) {
    while (const uint32_t tag = in_.ReadTag()) {
      const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (field == nullptr) ++num_texts_;  // kept with the message
      if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
        if (IsTooLarge() || !WireFormatLite::SkipField(&in_, tag)) return false;
        continue;
      }
      int length = 0;
      if (!in_.ReadVarintSizeAsInt(&length)) return false;
      if (!(IsMessage(field) ? CountSubmessage(*field->message_type(), length)
                             : CountText(field, length)))
        return false;
    }
    return true;
  }

 private:
  static bool IsMessage(const FieldDescriptor* field) {
    return field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  }

  bool CountSubmessage(const Descriptor& type, int length) {
    ++num_submessages_;
    if (IsTooLarge()) return false;
    const auto [limit, depth] = in_.IncrementRecursionDepthAndPushLimit(length);
    if (depth < 0 || !Count(type)) return false;
    return in_.DecrementRecursionDepthAndPopLimit(limit);  // false: it ended early
  }

  bool CountText(const FieldDescriptor* field, int length) {
    const bool is_text = field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if (is_text && field->is_repeated()) ++num_texts_;
    return !IsTooLarge() && in_.Skip(length);
  }

  google::protobuf::io::CodedInputStream in_;
  int64_t num_submessages_ = 0;
  int64_t num_texts_ = 0;
};

}  // namespace

bool HasFewParts(google::protobuf::io::ZeroCopyInputStream& bytes, const Descriptor& type) {
  PartCount count(bytes);
  count.Count(type);
  return !count.IsTooLarge();
}

}  // namespace inflight::kserve_grpc
