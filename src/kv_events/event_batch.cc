// SPDX-License-Identifier: Apache-2.0
#include "kv_events/event_batch.h"

#include <msgpack.h>

#include <cstring>

namespace inflight::kv_events {
namespace {

int Append(void* out, const char* bytes, size_t size) {
  static_cast<std::string*>(out)->append(bytes, size);
  return 0;
}

// Whether `next` may stand in the entry that ends with `last`.
bool GoesOn(const Event& last, const Event& next) {
  if (last.is_stored != next.is_stored || last.medium != next.medium) return false;
  return !last.is_stored ||
         (next.has_parent && next.parent_hash == last.hash && next.salt == last.salt);
}

class Writer {
 public:
  Writer(std::string* out, const MediumNames& media) : media_(media) {
    msgpack_packer_init(&packer_, out, &Append);
  }

  void Array(size_t size) { msgpack_pack_array(&packer_, size); }
  void Double(double value) { msgpack_pack_double(&packer_, value); }
  void Unsigned(uint64_t value) { msgpack_pack_uint64(&packer_, value); }
  void Nil() { msgpack_pack_nil(&packer_); }
  void Text(const char* text) {
    const size_t size = std::strlen(text);
    msgpack_pack_str(&packer_, size);
    msgpack_pack_str_body(&packer_, text, size);
  }
  void Medium(KvMedium medium) { Text(medium == KvMedium::kDevice ? media_.device : media_.host); }
  void Hashes(std::span<const Event> events) {
    Array(events.size());
    for (const Event& event : events) Unsigned(event.hash);
  }

  void Stored(std::span<const Event> events) {
    const Event& first = events.front();
    Array(first.salt == 0 ? 8 : 9);
    Text("BlockStored");
    Hashes(events);
    if (first.has_parent) {
      Unsigned(first.parent_hash);
    } else {
      Nil();
    }
    Array(events.size() * first.tokens.size());
    for (const Event& event : events)
      for (const TokenId token : event.tokens) msgpack_pack_int32(&packer_, token);
    Unsigned(first.tokens.size());
    Nil();  // lora_id
    Medium(first.medium);
    Nil();  // lora_name
    if (first.salt == 0) return;
    Array(events.size());  // extra_keys: what a block's hash covers beside tokens, a list for each
    for (const Event& event : events) {
      Array(1);
      Unsigned(event.salt);
    }
  }

  void Removed(std::span<const Event> events) {
    Array(3);
    Text("BlockRemoved");
    Hashes(events);
    Medium(events.front().medium);
  }

 private:
  msgpack_packer packer_{};
  const MediumNames& media_;
};

// How many events from `first` on are one entry.
size_t EntrySize(std::span<const Event> events, size_t first) {
  size_t end = first + 1;
  while (end < events.size() && GoesOn(events[end - 1], events[end])) ++end;
  return end - first;
}

}  // namespace

std::string EncodeBatch(double seconds, bool all_cleared, std::span<const Event> events,
                        const MediumNames& media) {
  size_t num_entries = all_cleared ? 1 : 0;
  for (size_t i = 0; i < events.size(); i += EntrySize(events, i)) ++num_entries;
  std::string out;
  Writer writer(&out, media);
  writer.Array(3);
  writer.Double(seconds);
  writer.Array(num_entries);
  if (all_cleared) {
    writer.Array(1);
    writer.Text("AllBlocksCleared");
  }
  for (size_t i = 0; i < events.size();) {
    const size_t size = EntrySize(events, i);
    const std::span<const Event> entry = events.subspan(i, size);
    if (entry.front().is_stored) {
      writer.Stored(entry);
    } else {
      writer.Removed(entry);
    }
    i += size;
  }
  writer.Unsigned(0);  // data_parallel_rank
  return out;
}

}  // namespace inflight::kv_events
