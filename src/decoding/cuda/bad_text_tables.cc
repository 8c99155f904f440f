// SPDX-License-Identifier: Apache-2.0
#include "decoding/cuda/bad_text_tables.h"

#include <cstring>
#include <span>
#include <utility>

#include "tensor/cuda_runtime_calls.h"

namespace inflight::decoding {
namespace {

// Arrays one behind the other, and where each will be on the device.
class Image {
 public:
  template <typename Range>
  size_t Add(const Range& values) {
    const auto bytes = std::as_bytes(std::span(values));
    const size_t begin = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
    bytes_.resize(begin + bytes.size());
    if (!bytes.empty()) std::memcpy(bytes_.data() + begin, bytes.data(), bytes.size());
    return begin;
  }
  template <typename T>
  void Put(size_t at, const T& value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }

  Result<Buffer> Allocate(Device& device) const {
    return Buffer::Allocate(device, "sampler", bytes_.size());
  }
  Status CopyTo(Device& device, const Buffer& memory) const {
    return inflight::cuda::Copy(device.cuda().index, memory.data(), bytes_.data(), bytes_.size());
  }

 private:
  static constexpr size_t kAlignment = 16;
  std::vector<std::byte> bytes_;
};

template <typename T>
const T* At(const Buffer& memory, size_t offset) {
  return reinterpret_cast<const T*>(memory.data() + offset);
}

}  // namespace

Status BadTextTables::Set(int slot, const std::shared_ptr<const BadTexts>& bad) {
  std::shared_ptr<const Table>& own = slots_[static_cast<size_t>(slot)];
  if (bad == nullptr) {
    own.reset();
    return Status::Ok();
  }
  for (const auto& table : slots_) {
    if (table == nullptr || table->host != bad) continue;
    own = table;
    return Status::Ok();
  }
  ASSIGN_OR_RETURN(own, Upload(bad));
  return Status::Ok();
}

const DeviceBadTexts* BadTextTables::Of(int slot) const {
  const Table* table = slots_[static_cast<size_t>(slot)].get();
  return table == nullptr ? nullptr : At<DeviceBadTexts>(table->memory, 0);
}

Result<std::shared_ptr<const BadTextTables::Tokens>> BadTextTables::Upload(
    const std::shared_ptr<const TokenTexts>& tokens) {
  for (const auto& table : slots_)
    if (table != nullptr && table->tokens->host == tokens) return table->tokens;
  Image image;
  const size_t bytes = image.Add(tokens->bytes);
  const size_t begins = image.Add(tokens->begins);
  const size_t sorted = image.Add(tokens->sorted);
  ASSIGN_OR_RETURN(Buffer memory, image.Allocate(device_));
  RETURN_IF_ERROR(image.CopyTo(device_, memory));
  const DeviceBadTexts part{.token_bytes = At<char>(memory, bytes),
                            .token_begins = At<uint32_t>(memory, begins),
                            .sorted = At<int32_t>(memory, sorted),
                            .num_tokens = tokens->num_tokens()};
  return std::make_shared<const Tokens>(Tokens{tokens, std::move(memory), part});
}

Result<std::shared_ptr<const BadTextTables::Table>> BadTextTables::Upload(
    const std::shared_ptr<const BadTexts>& bad) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Tokens> tokens, Upload(bad->tokens));
  DeviceBadTexts header = tokens->part;
  Image image;
  image.Add(std::span(&header, 1));
  const size_t texts = image.Add(bad->texts);
  const size_t banned = image.Add(bad->banned);
  const size_t completions = image.Add(bad->completions);
  const size_t groups = image.Add(bad->groups);
  ASSIGN_OR_RETURN(Buffer memory, image.Allocate(device_));
  header.texts = At<char>(memory, texts);
  header.banned = At<int32_t>(memory, banned);
  header.completions = At<BadTexts::Completion>(memory, completions);
  header.groups = At<uint32_t>(memory, groups);
  header.num_banned = static_cast<int32_t>(bad->banned.size());
  image.Put(0, header);
  RETURN_IF_ERROR(image.CopyTo(device_, memory));
  return std::make_shared<const Table>(Table{bad, std::move(tokens), std::move(memory)});
}

}  // namespace inflight::decoding
