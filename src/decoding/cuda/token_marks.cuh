// SPDX-License-Identifier: Apache-2.0
// What a sequence's tokens and a slot's lists say of the ids of a chunk, a word for each in shared
// memory: how often the id occurred, and bits for ids that must not come (decoding/bans.h).
#pragma once

#include <cstdint>

#include "decoding/cuda/bad_text_tables.h"
#include "decoding/cuda/device_sampler.h"
#include "decoding/cuda/slot_rule.h"

namespace inflight::decoding {

constexpr int kThreads = 512;  // of a CTA, all of which call each function

// The tokens that a row's draw follows, by position.
class RowText {
 public:
  // `shifts` of the row (DeviceSampleParams::row_shifts) or null.
  __device__ RowText(const int32_t* tokens, int num_tokens, const uint8_t* shifts)
      : tokens_(tokens), num_tokens_(num_tokens), shifts_(shifts) {}

  __device__ int size() const { return num_tokens_; }
  __device__ int32_t operator[](int position) const {
    const int back = num_tokens_ - 1 - position;
    if (shifts_ != nullptr && back < DeviceSampleParams::kTextShifts) position += shifts_[back];
    return tokens_[position];
  }

 private:
  const int32_t* const tokens_;
  const int num_tokens_;
  const uint8_t* const shifts_;
};

// The bytes of a text, the last one first, read from the tokens that spell it.
class BytesFromEnd {
 public:
  __device__ BytesFromEnd(const DeviceBadTexts& bad, const RowText& text)
      : bad_(bad), text_(text), num_tokens_(text.size()) {}

  __device__ int Next() {  // -1 = there is none
    while (begin_ == end_) {
      if (num_tokens_ == 0) return -1;
      const int32_t token = text_[--num_tokens_];
      if (token < 0 || token >= bad_.num_tokens) continue;
      begin_ = bad_.token_begins[token];
      end_ = bad_.token_begins[token + 1];
    }
    return static_cast<unsigned char>(bad_.token_bytes[--end_]);
  }

 private:
  const DeviceBadTexts& bad_;
  const RowText text_;
  int num_tokens_;
  uint32_t begin_ = 0;  // of what is left of a token
  uint32_t end_ = 0;
};

class TokenMarks {
 public:
  static constexpr uint32_t kBannedBit = 1U << 31;
  static constexpr uint32_t kSuppressedBit = 1U << 30;

  // Of the ids [first, first + count).
  __device__ TokenMarks(uint32_t* marks, int first, int count)
      : marks_(marks), first_(first), count_(count) {}

  __device__ void Clear() const {
    for (int i = Thread(); i < count_; i += kThreads) marks_[i] = 0;
  }

  // Occurrences in the text from `begin` on.
  __device__ void Count(const RowText& text, int begin) const {
    for (int i = begin + Thread(); i < text.size(); i += kThreads) {
      const int32_t token = text[i];
      if (Has(token)) atomicAdd(&marks_[token - first_], 1U);
    }
  }

  // As decoding::Ban: what `rule` forbids behind the text.
  __device__ void Ban(const SlotRule& rule, const int32_t* list, const RowText& text) const {
    if (text.size() < rule.first_end_position)
      for (int i = Thread(); i < rule.num_end_ids; i += kThreads) Set(list[i], kSuppressedBit);
    if (rule.no_repeat_ngram_size > 0) BanRepeatedNgrams(rule.no_repeat_ngram_size - 1, text);
    const int32_t* word_ends = list + rule.num_end_ids;
    const int32_t* word_ids = word_ends + rule.num_words;
    for (int w = Thread(); w < rule.num_words; w += kThreads) {
      const int begin = w == 0 ? 0 : word_ends[w - 1];
      BanWord(word_ids + begin, word_ends[w] - begin - 1, text);
    }
    if (rule.bad_texts != nullptr) BanTexts(*rule.bad_texts, text);
  }

 private:
  static __device__ int Thread() { return static_cast<int>(threadIdx.x); }

  __device__ bool Has(int32_t id) const { return id >= first_ && id < first_ + count_; }
  __device__ void Set(int32_t id, uint32_t bit) const {
    if (Has(id)) atomicOr(&marks_[id - first_], bit);
  }

  // Whether the text ends with the `size` values of `values`, by index.
  template <typename Values>
  static __device__ bool Ends(const RowText& text, const Values& values, int size) {
    for (int i = 0; i < size; ++i)
      if (text[text.size() - size + i] != values(i)) return false;
    return true;
  }

  __device__ void BanRepeatedNgrams(int prefix_size, const RowText& text) const {
    for (int i = Thread(); i < text.size() - prefix_size; i += kThreads) {
      const int32_t next = text[i + prefix_size];
      if (!Has(next)) continue;
      if (Ends(
              text, [&](int j) { return text[i + j]; }, prefix_size))
        Set(next, kBannedBit);
    }
  }

  __device__ void BanWord(const int32_t* word, int prefix_size, const RowText& text) const {
    if (!Has(word[prefix_size]) || prefix_size > text.size()) return;
    if (Ends(
            text, [word](int i) { return word[i]; }, prefix_size))
      Set(word[prefix_size], kBannedBit);
  }

  // Each thread compares the texts of its completions, each warp marks those of its threads.
  __device__ void BanTexts(const DeviceBadTexts& bad, const RowText& text) const {
    for (int i = Thread(); i < bad.num_banned; i += kThreads) Set(bad.banned[i], kBannedBit);
    const int last_byte = BytesFromEnd(bad, text).Next();
    if (last_byte < 0) return;
    const int lane = Thread() % 32;
    const auto end = static_cast<int>(bad.groups[last_byte + 1]);
    for (int base = static_cast<int>(bad.groups[last_byte]) + Thread() - lane; base < end;
         base += kThreads) {
      const int i = base + lane;
      const bool is_met = i < end && EndsWith(bad, bad.completions[i], BytesFromEnd(bad, text));
      for (unsigned met = __ballot_sync(0xffffffff, is_met); met != 0; met &= met - 1) {
        const BadTexts::Completion completion = bad.completions[base + __ffs(met) - 1];
        for (int at = completion.first + lane; at < completion.last; at += 32)
          Set(bad.sorted[at], kBannedBit);
      }
    }
  }

  static __device__ bool EndsWith(const DeviceBadTexts& bad, const BadTexts::Completion& completion,
                                  BytesFromEnd text) {
    const char* const before = bad.texts + completion.begin;
    for (uint32_t i = completion.size; i > 0; --i)
      if (text.Next() != static_cast<unsigned char>(before[i - 1])) return false;
    return true;
  }

  uint32_t* const marks_;
  const int first_;
  const int count_;
};

}  // namespace inflight::decoding
