// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/part_count.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <iterator>
#include <utility>

namespace inflight::kserve_grpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

class Counter {
 public:
  explicit Counter(google::protobuf::io::ZeroCopyInputStream& bytes) : in_(&bytes) {}

  PartCount& count() { return count_; }

  // False where nothing is left to be counted: there are too many already, or no such message.
  bool Count(const Descriptor& type, bool is_top = false) {
    while (const uint32_t tag = in_.ReadTag()) {
      const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (field == nullptr) ++count_.num_texts;  // kept with the message
      if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
        if (count_.IsTooLarge() || !WireFormatLite::SkipField(&in_, tag)) return false;
        continue;
      }
      int length = 0;
      if (!in_.ReadVarintSizeAsInt(&length)) return false;
      if (!(IsMessage(field) ? CountSubmessage(*field->message_type(), length)
                             : CountText(field, length, is_top)))
        return false;
    }
    return true;
  }

 private:
  static bool IsMessage(const FieldDescriptor* field) {
    return field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  }

  bool CountSubmessage(const Descriptor& type, int length) {
    ++count_.num_submessages;
    if (count_.IsTooLarge()) return false;
    const auto [limit, depth] = in_.IncrementRecursionDepthAndPushLimit(length);
    if (depth < 0 || !Count(type)) return false;
    return in_.DecrementRecursionDepthAndPopLimit(limit);  // false: it ended early
  }

  bool CountText(const FieldDescriptor* field, int length, bool is_top) {
    const bool is_text = field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if (is_top && is_text && field->number() <= std::ssize(count_.first_texts) &&
        length <= kMaxFirstTextBytes) {
      return in_.ReadString(&count_.first_texts[static_cast<size_t>(field->number() - 1)], length);
    }
    if (is_text && field->is_repeated()) ++count_.num_texts;
    return !count_.IsTooLarge() && in_.Skip(length);
  }

  google::protobuf::io::CodedInputStream in_;
  PartCount count_;
};

}  // namespace

PartCount CountParts(google::protobuf::io::ZeroCopyInputStream& bytes, const Descriptor& type) {
  Counter counter(bytes);
  counter.Count(type, /*is_top=*/true);
  return std::move(counter.count());
}

}  // namespace inflight::kserve_grpc
