// SPDX-License-Identifier: Apache-2.0
#include "artifact/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "artifact/pickle_opcode.h"
#include "artifact/pickle_stack.h"
#include "artifact/printable.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read without swapping");

using Kind = PickleValue::Kind;

// Far above any state dict: one of 2,000 tensors takes some 300 KB.
constexpr size_t kMaxPickleBytes = size_t{64} << 20;
constexpr uint8_t kMaxProtocol = 5;

struct AllowedGlobal {
  std::string_view module;
  std::string_view name;
  PickleGlobal global;
  DType dtype = DType::kF32;  // of a storage type
};
constexpr AllowedGlobal kAllowedGlobals[] = {
    {"collections", "OrderedDict", PickleGlobal::kOrderedDict},
    {"torch._utils", "_rebuild_tensor_v2", PickleGlobal::kRebuildTensor},
    {"torch._utils", "_rebuild_parameter", PickleGlobal::kRebuildParameter},
    {"torch", "FloatStorage", PickleGlobal::kStorageType, DType::kF32},
    {"torch", "HalfStorage", PickleGlobal::kStorageType, DType::kF16},
    {"torch", "BFloat16Storage", PickleGlobal::kStorageType, DType::kBF16},
    {"torch", "DoubleStorage", PickleGlobal::kStorageType, DType::kF64},
    {"torch", "CharStorage", PickleGlobal::kStorageType, DType::kI8},
    {"torch", "ByteStorage", PickleGlobal::kStorageType, DType::kU8},
    {"torch", "ShortStorage", PickleGlobal::kStorageType, DType::kI16},
    {"torch", "IntStorage", PickleGlobal::kStorageType, DType::kI32},
    {"torch", "LongStorage", PickleGlobal::kStorageType, DType::kI64},
    {"torch", "BoolStorage", PickleGlobal::kStorageType, DType::kBool},
};

// The only attribute that BUILD may give to an OrderedDict: versions of a module's buffers, which
// nothing here needs.
constexpr std::string_view kMetadataKey = "_metadata";

class PickleReader {
 public:
  explicit PickleReader(std::span<const std::byte> bytes)
      : text_(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kMaxPickleBytes)),
        is_cut_(bytes.size() > kMaxPickleBytes) {}

  Result<Pickle> Read() {
    while (!is_done_) {
      op_at_ = at_;
      uint8_t op = 0;
      Status status = ReadNumber(op);
      if (status.ok()) status = Step(op);
      if (!status.ok()) return status.WithPrefix(Where(op));
    }
    pickle_.num_bytes = at_;
    return std::move(pickle_);
  }

 private:
  std::string Where(uint8_t op) const {
    const std::string_view name = PickleOpName(op);
    if (op_at_ == text_.size() || name.empty()) return fmt::format("pickle: byte {}", op_at_);
    return fmt::format("pickle: byte {}: {}", op_at_, name);
  }

  // What an opcode reads.

  Result<std::string_view> Take(uint64_t num_bytes) {
    if (num_bytes > text_.size() - at_) {
      if (is_cut_)
        return InvalidArgument(fmt::format(
            "longer than {} bytes, the bound of what describes tensors", kMaxPickleBytes));
      return DataLoss("truncated");
    }
    const std::string_view taken = text_.substr(at_, num_bytes);
    at_ += num_bytes;
    return taken;
  }

  template <typename T>
  Status ReadNumber(T& number) {
    ASSIGN_OR_RETURN(const std::string_view bytes, Take(sizeof(T)));
    std::memcpy(&number, bytes.data(), sizeof(T));
    return Status::Ok();
  }

  template <typename Length>
  Result<std::string_view> TakeCounted() {
    Length num_bytes = 0;
    RETURN_IF_ERROR(ReadNumber(num_bytes));
    return Take(num_bytes);
  }

  Result<std::string_view> TakeLine() {
    const size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) return Take(text_.size() - at_ + 1);
    ASSIGN_OR_RETURN(std::string_view line, Take(end - at_ + 1));
    line.remove_suffix(1);
    return line;
  }

  // What opcodes push.

  Status PushKind(Kind kind) { return stack_.Push({.kind = kind}); }
  Status PushNumber(Kind kind, int64_t number) {
    return stack_.Push({.kind = kind, .number = number});
  }
  Status PushText(const Result<std::string_view>& text) {
    if (!text.ok()) return text.status();
    return stack_.Push({.kind = Kind::kText, .text = *text});
  }
  Status PushTuple(Result<std::vector<PickleIdx>> items) {
    if (!items.ok()) return items.status();
    return stack_.PushItems(Kind::kTuple, *std::move(items));
  }

  // The opcodes.

  Status Step(uint8_t op) {
    switch (static_cast<PickleOp>(op)) {
      case PickleOp::kProto:
        return Proto();
      case PickleOp::kFrame:
        return TakeFrame();
      case PickleOp::kStop:
        return Stop();
      case PickleOp::kMark:
        return stack_.Mark();
      case PickleOp::kNone:
        return PushKind(Kind::kNone);
      case PickleOp::kNewTrue:
        return PushNumber(Kind::kBool, 1);
      case PickleOp::kNewFalse:
        return PushNumber(Kind::kBool, 0);
      case PickleOp::kBinInt:
        return Int<int32_t>();
      case PickleOp::kBinInt1:
        return Int<uint8_t>();
      case PickleOp::kBinInt2:
        return Int<uint16_t>();
      case PickleOp::kLong1:
        return Long();
      case PickleOp::kBinFloat:
        RETURN_IF_ERROR(Take(sizeof(double)).status());
        return PushKind(Kind::kFloat);
      case PickleOp::kShortBinUnicode:
        return PushText(TakeCounted<uint8_t>());
      case PickleOp::kBinUnicode:
        return PushText(TakeCounted<uint32_t>());
      case PickleOp::kBinUnicode8:
        return PushText(TakeCounted<uint64_t>());
      case PickleOp::kEmptyTuple:
        return PushKind(Kind::kTuple);
      case PickleOp::kTuple1:
        return PushTuple(stack_.PopItems(1));
      case PickleOp::kTuple2:
        return PushTuple(stack_.PopItems(2));
      case PickleOp::kTuple3:
        return PushTuple(stack_.PopItems(3));
      case PickleOp::kTuple:
        return PushTuple(stack_.PopToMark());
      case PickleOp::kEmptyList:
        return PushKind(Kind::kList);
      case PickleOp::kAppend:
        return Extend(Kind::kList, stack_.PopItems(1));
      case PickleOp::kAppends:
        return Extend(Kind::kList, stack_.PopToMark());
      case PickleOp::kEmptyDict:
        return PushKind(Kind::kDict);
      case PickleOp::kSetItem:
        return Extend(Kind::kDict, stack_.PopItems(2));
      case PickleOp::kSetItems:
        return Extend(Kind::kDict, stack_.PopToMark());
      case PickleOp::kBinPut:
        return Put<uint8_t>();
      case PickleOp::kLongBinPut:
        return Put<uint32_t>();
      case PickleOp::kMemoize:
        return stack_.Keep(stack_.num_kept());
      case PickleOp::kBinGet:
        return Get<uint8_t>();
      case PickleOp::kLongBinGet:
        return Get<uint32_t>();
      case PickleOp::kGlobal: {
        ASSIGN_OR_RETURN(const std::string_view module, TakeLine());
        ASSIGN_OR_RETURN(const std::string_view name, TakeLine());
        return PushGlobal(module, name);
      }
      case PickleOp::kStackGlobal:
        return StackGlobal();
      case PickleOp::kBinPersId:
        return PersistentId();
      case PickleOp::kReduce:
        return Reduce();
      case PickleOp::kBuild:
        return Build();
    }
    if (PickleOpName(op).empty()) return InvalidArgument(fmt::format("0x{:02x} is no opcode", op));
    return Unimplemented("this opcode is refused: no state dict of tensors needs it");
  }

  Status Proto() {
    uint8_t protocol = 0;
    RETURN_IF_ERROR(ReadNumber(protocol));
    if (protocol > kMaxProtocol)
      return Unimplemented(fmt::format("got {}, at most {} is read", protocol, kMaxProtocol));
    return Status::Ok();
  }

  // Frames only help readers of streams; what they promise is not relied on.
  Status TakeFrame() {
    uint64_t num_bytes = 0;
    return ReadNumber(num_bytes);
  }

  Status Stop() {
    ASSIGN_OR_RETURN(pickle_, stack_.Finish());
    is_done_ = true;
    return Status::Ok();
  }

  template <typename T>
  Status Int() {
    T number = 0;
    RETURN_IF_ERROR(ReadNumber(number));
    return PushNumber(Kind::kInt, number);
  }

  // Two's complement of any length.
  Status Long() {
    ASSIGN_OR_RETURN(const std::string_view bytes, TakeCounted<uint8_t>());
    if (bytes.size() > sizeof(int64_t)) return stack_.Push({.kind = Kind::kHugeInt, .text = bytes});
    const bool is_negative = !bytes.empty() && (static_cast<uint8_t>(bytes.back()) & 0x80U) != 0;
    int64_t number = is_negative ? -1 : 0;
    std::memcpy(&number, bytes.data(), bytes.size());
    return PushNumber(Kind::kInt, number);
  }

  Status Extend(Kind kind, const Result<std::vector<PickleIdx>>& items) {
    if (!items.ok()) return items.status();
    if (kind == Kind::kDict && items->size() % 2 != 0)
      return InvalidArgument("a key without a value");
    return stack_.Extend(kind, *items);
  }

  template <typename Key>
  Status Put() {
    Key key = 0;
    RETURN_IF_ERROR(ReadNumber(key));
    return stack_.Keep(key);
  }
  template <typename Key>
  Status Get() {
    Key key = 0;
    RETURN_IF_ERROR(ReadNumber(key));
    return stack_.Recall(key);
  }

  Status PushGlobal(std::string_view module, std::string_view name) {
    for (const AllowedGlobal& allowed : kAllowedGlobals)
      if (allowed.module == module && allowed.name == name)
        return stack_.Push(
            {.kind = Kind::kGlobal, .global = allowed.global, .dtype = allowed.dtype});
    return Unimplemented(fmt::format("global {} is refused: only dense tensors are made",
                                     Printable(fmt::format("{}.{}", module, name))));
  }

  Status StackGlobal() {
    ASSIGN_OR_RETURN(const PickleIdx name, stack_.Pop());
    ASSIGN_OR_RETURN(const PickleIdx module, stack_.Pop());
    if (stack_[module].kind != Kind::kText || stack_[name].kind != Kind::kText)
      return InvalidArgument("two texts are needed");
    return PushGlobal(stack_[module].text, stack_[name].text);
  }

  Status PersistentId() {
    ASSIGN_OR_RETURN(const PickleIdx id, stack_.Pop());
    if (stack_[id].kind != Kind::kTuple)
      return InvalidArgument(fmt::format("persistent id is {}, the tuple of a storage is needed",
                                         PickleKindName(stack_[id].kind)));
    return stack_.PushItems(Kind::kStorage, {id});
  }

  // "Calls" one of the three callables: notes the result's kind and its arguments.
  Status Reduce() {
    ASSIGN_OR_RETURN(const PickleIdx args_idx, stack_.Pop());
    ASSIGN_OR_RETURN(const PickleIdx callable_idx, stack_.Pop());
    const PickleValue& args = stack_[args_idx];
    const PickleValue& callable = stack_[callable_idx];
    if (callable.kind != Kind::kGlobal)
      return Unimplemented(fmt::format("call of {} is refused", PickleKindName(callable.kind)));
    if (args.kind != Kind::kTuple)
      return InvalidArgument(
          fmt::format("arguments are {}, a tuple is needed", PickleKindName(args.kind)));
    switch (callable.global) {
      case PickleGlobal::kOrderedDict:
        if (!args.items.empty())
          return Unimplemented("call of OrderedDict with arguments is refused");
        return PushKind(Kind::kDict);
      case PickleGlobal::kRebuildTensor:
        return stack_.PushItems(Kind::kTensor, {args_idx});
      case PickleGlobal::kRebuildParameter:
        if (args.items.empty() || stack_[args.items[0]].kind != Kind::kTensor)
          return InvalidArgument("call of _rebuild_parameter: a tensor is needed");
        stack_.PushAgain(args.items[0]);
        return Status::Ok();
      case PickleGlobal::kStorageType:
        break;
    }
    return Unimplemented("call of a storage type is refused");
  }

  Status Build() {
    ASSIGN_OR_RETURN(const PickleIdx state, stack_.Pop());
    RETURN_IF_ERROR(stack_.Top(Kind::kDict).status());
    if (stack_[state].kind != Kind::kDict)
      return Unimplemented(
          fmt::format("state is {}, a dict is needed", PickleKindName(stack_[state].kind)));
    const std::vector<PickleIdx>& items = stack_[state].items;
    if (items.empty()) return Status::Ok();
    const PickleValue& key = stack_[items.front()];
    if (key.kind != Kind::kText || key.text != kMetadataKey)
      return Unimplemented(fmt::format("attribute {} is refused", ShowPickleValue(key)));
    if (items.size() != 2)
      return Unimplemented(
          fmt::format("{} attributes, only {} is allowed", items.size() / 2, kMetadataKey));
    return Status::Ok();
  }

  std::string_view text_;
  const bool is_cut_;
  size_t at_ = 0;
  size_t op_at_ = 0;
  bool is_done_ = false;
  Pickle pickle_;
  PickleStack stack_;
};

}  // namespace

Result<Pickle> ReadPickle(std::span<const std::byte> bytes) { return PickleReader(bytes).Read(); }

}  // namespace inflight::artifact
