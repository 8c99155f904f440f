// SPDX-License-Identifier: Apache-2.0
// Things that clients have kept, in room that they share: whoever has most of it makes room first,
// by what it used least recently, so that nobody who has less loses anything to it. One client
// alone has all the room.
//
// Clients are told apart by their identity (client.h); those without a key are one. Their number is
// that of keys: what looks for the one that has most looks at each.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <utility>

#include "base/client.h"

namespace inflight {

template <typename T>
class FairLru {
 public:
  struct Entry {
    Identity owner;
    uint64_t bytes;
    T value;
  };
  using Place = typename std::list<Entry>::iterator;  // valid until it is dropped

  // `on_drop` is called with each value before it goes.
  explicit FairLru(std::function<void(T&)> on_drop) : on_drop_(std::move(on_drop)) {}

  // Makes room for another `bytes` of this client's, until no more than `limit` are there with
  // them. False, and nothing is dropped, where it would take from clients that then had less: the
  // thing is to be left out.
  bool MakeRoom(const Identity& owner, uint64_t bytes, uint64_t limit) {
    if (bytes_ + bytes > limit && bytes_ + bytes - limit > MayTake(owner, bytes)) return false;
    while (bytes_ + bytes > limit) {
      if (!DropFor(owner, bytes)) return false;
    }
    return true;
  }

  // Drops one thing in favour of another `bytes` of this client's: of who has most with them. False
  // where that is the client itself and it has no other.
  bool DropFor(const Identity& owner, uint64_t bytes) {
    const auto own = owners_.find(owner);
    const uint64_t wanted = bytes + BytesOf(own);
    const auto most =
        std::ranges::max_element(owners_, {}, [](const auto& entry) { return entry.second.bytes; });
    const auto victim = BytesOf(most) > wanted ? most : own;
    if (victim == owners_.end()) return false;
    Drop(std::prev(victim->second.entries.end()));
    return true;
  }

  Place Add(const Identity& owner, uint64_t bytes, T value) {
    std::list<Entry> added;
    added.push_front({.owner = owner, .bytes = bytes, .value = std::move(value)});
    Own& own = owners_[owner];
    own.entries.splice(own.entries.begin(), added);  // nothing that throws: none is left empty
    own.bytes += bytes;
    bytes_ += bytes;
    return own.entries.begin();
  }

  // It was used now.
  void Touch(Place place) {
    std::list<Entry>& entries = owners_.find(place->owner)->second.entries;
    entries.splice(entries.begin(), entries, place);
  }

  void Drop(Place place) {
    const auto own = owners_.find(place->owner);
    on_drop_(place->value);
    bytes_ -= place->bytes;
    own->second.bytes -= place->bytes;
    own->second.entries.erase(place);
    if (own->second.entries.empty()) owners_.erase(own);
  }

  // Those that were used least recently, while `is_old(value)`.
  template <typename IsOld>
  void DropOld(const IsOld& is_old) {
    for (auto next = owners_.begin(); next != owners_.end();) {
      const auto own = next++;
      for (size_t left = own->second.entries.size(); left > 0; --left) {
        const Place last = std::prev(own->second.entries.end());
        if (!is_old(last->value)) break;
        Drop(last);
      }
    }
  }

  uint64_t bytes() const { return bytes_; }

 private:
  struct Own {
    std::list<Entry> entries = {};  // the one used last first; never empty
    uint64_t bytes = 0;
  };
  using Owners = std::map<Identity, Own>;

  uint64_t BytesOf(typename Owners::const_iterator own) const {
    return own == owners_.end() ? 0 : own->second.bytes;
  }

  // What the client has, and what others have more than it would.
  uint64_t MayTake(const Identity& owner, uint64_t bytes) const {
    const uint64_t own = BytesOf(owners_.find(owner));
    uint64_t may_take = own;
    for (const auto& [other, held] : owners_)
      if (held.bytes > own + bytes) may_take += held.bytes - own - bytes;
    return may_take;
  }

  const std::function<void(T&)> on_drop_;
  Owners owners_;
  uint64_t bytes_ = 0;
};

}  // namespace inflight
