// SPDX-License-Identifier: Apache-2.0
#include "comm/host_communicator.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "comm/group_communicator.h"
#include "comm/shared_group.h"

namespace inflight::comm {
namespace {

// Where a process of this host has the file of a region. The name, which nobody guesses, tells it
// from a file of the same numbers on another host.
struct RegionPlace {
  pid_t process = 0;
  int descriptor = -1;
  std::string name;

  std::string ToString() const { return fmt::format("{} {} {}", process, descriptor, name); }
};

RegionPlace ReadRegionPlace(const std::string& text) {
  RegionPlace place;
  std::istringstream(text) >> place.process >> place.descriptor >> place.name;
  return place;
}

// Memory that the processes of a host share.
class Region {
 public:
  Region() = default;
  ~Region() {
    if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  Region(Region&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Region& operator=(Region&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // None where there is no room, or `file` is none.
  static Region Make(const Descriptor& file, size_t num_bytes) {
    // All of it: what is not there when it is first written ends the process.
    if (!file.ok() || posix_fallocate(file.get(), 0, static_cast<off_t>(num_bytes)) != 0) return {};
    return Map(file, num_bytes);
  }
  // Of the process that says `place`; none where that is not here.
  static Region Open(const RegionPlace& place, size_t num_bytes) {
    const std::string path = fmt::format("/proc/{}/fd/{}", place.process, place.descriptor);
    std::error_code error;
    const auto target = std::filesystem::read_symlink(path, error);
    if (error || target != fmt::format("/memfd:{} (deleted)", place.name)) return {};
    const Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC));
    return file.ok() ? Map(file, num_bytes) : Region();
  }

  std::span<std::byte> bytes() const { return bytes_; }
  bool ok() const { return !bytes_.empty(); }

 private:
  static Region Map(const Descriptor& file, size_t num_bytes) {
    Region region;
    void* const at =
        mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), /*offset=*/0);
    if (at != MAP_FAILED) region.bytes_ = {static_cast<std::byte*>(at), num_bytes};
    return region;
  }

  std::span<std::byte> bytes_;
};

// Keeps the region, and ends the group of processes with the collectives.
class HostCommunicator : public Communicator {
 public:
  HostCommunicator(Group& group, Region region, int rank, int size)
      : group_(group),
        region_(std::move(region)),
        shared_(
            SharedGroup::Join(region_.bytes(), rank, size, [&group] { return group.status(); })) {}

  int rank() const override { return shared_->rank(); }
  int size() const override { return shared_->size(); }
  Status AllReduce(const TensorView& values, Stream& stream) override {
    return shared_->AllReduce(values, stream);
  }
  Status AllGather(const TensorView& mine, const TensorView& all, Stream& stream) override {
    return shared_->AllGather(mine, all, stream);
  }
  Status Send(const TensorView& values, int to, Stream& stream) override {
    return shared_->Send(values, to, stream);
  }
  Status Receive(const TensorView& values, int from, Stream& stream) override {
    return shared_->Receive(values, from, stream);
  }
  void Abort(const Status& reason) override {
    group_.Abort(reason);
    shared_->Abort(reason);
  }

 private:
  Group& group_;
  const Region region_;
  const std::unique_ptr<Communicator> shared_;
};

std::string NewName() {
  std::array<uint64_t, 2> random = {};
  CHECK_EQ(getrandom(random.data(), sizeof random, 0), static_cast<ssize_t>(sizeof random));
  return fmt::format("inflight-ranks-{:016x}{:016x}", random[0], random[1]);
}

Status Say(Group& group, int rank, std::string_view text) {
  return group.Send(rank, std::as_bytes(std::span(text)));
}
Result<std::string> Hear(Group& group, int rank) {
  ASSIGN_OR_RETURN(const std::vector<std::byte> message, group.Receive(rank, Deadline::max()));
  return std::string(reinterpret_cast<const char*>(message.data()), message.size());
}

constexpr std::string_view kSeen = "yes";
constexpr std::string_view kUnseen = "no";

// Of the first member. No region where one of the others does not see it.
Result<Region> Offer(Group& group, const std::vector<int>& members, size_t num_bytes) {
  const std::string name = NewName();
  const Descriptor file(memfd_create(name.c_str(), MFD_CLOEXEC));
  const std::string place = RegionPlace{getpid(), file.get(), name}.ToString();
  Region region = Region::Make(file, num_bytes);
  bool do_all_see_it = region.ok();
  Status failed;
  for (size_t i = 1; i < members.size() && failed.ok(); ++i)
    failed = Say(group, members[i], region.ok() ? place : "");
  for (size_t i = 1; i < members.size() && failed.ok(); ++i) {
    const auto answer = Hear(group, members[i]);
    failed = answer.status();
    do_all_see_it = do_all_see_it && answer.ok() && *answer == kSeen;
  }
  RETURN_IF_ERROR(failed);
  for (size_t i = 1; i < members.size(); ++i)
    RETURN_IF_ERROR(Say(group, members[i], do_all_see_it ? kSeen : kUnseen));
  return do_all_see_it ? std::move(region) : Region();
}

Result<Region> Accept(Group& group, int first, size_t num_bytes) {
  ASSIGN_OR_RETURN(const std::string place, Hear(group, first));
  Region region = place.empty() ? Region() : Region::Open(ReadRegionPlace(place), num_bytes);
  RETURN_IF_ERROR(Say(group, first, region.ok() ? kSeen : kUnseen));
  ASSIGN_OR_RETURN(const std::string decision, Hear(group, first));
  return decision == kSeen ? std::move(region) : Region();
}

}  // namespace

Result<std::unique_ptr<Communicator>> MakeHostCommunicator(Group& group, std::vector<int> members) {
  const auto size = static_cast<int>(members.size());
  if (size <= kMaxRanksOfARegion) {
    const size_t num_bytes = SharedGroup::RegionBytes(size);
    const bool is_first = members.front() == group.rank();
    auto region =
        is_first ? Offer(group, members, num_bytes) : Accept(group, members.front(), num_bytes);
    if (!region.ok()) return region.status();
    logging::Verbose("ranks meet", {{"size", size}, {"in_shared_memory", region->ok()}});
    const auto rank = static_cast<int>(std::ranges::find(members, group.rank()) - members.begin());
    if (region->ok()) {
      return std::unique_ptr<Communicator>(
          std::make_unique<HostCommunicator>(group, *std::move(region), rank, size));
    }
  }
  return MakeGroupCommunicator(group, std::move(members));
}

}  // namespace inflight::comm
