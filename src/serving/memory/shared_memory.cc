// SPDX-License-Identifier: Apache-2.0
#include "serving/memory/shared_memory.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/control_bytes.h"
#include "base/status_macros.h"

namespace inflight::serving {
namespace {

// Keys of the shared memory between a server and its Python models.
constexpr std::string_view kReservedPrefix = "triton_python_backend_shm_region_";

std::string TooLong(const char* what, size_t bytes) {
  return std::string("the ") + what + " has " + std::to_string(bytes) + " bytes, at most " +
         std::to_string(kMaxRegionNameBytes) + " are allowed";
}

Status Refuse(const std::string& name, const std::string& why) {
  return InvalidArgument("failed to register shared memory region '" + name + "': " + why);
}

// The object's name, whatever slashes stand before it: shm_open takes them all for one.
std::string_view ObjectName(std::string_view key) {
  key.remove_prefix(std::min(key.find_first_not_of('/'), key.size()));
  return key;
}

// Whether bytes [offset, offset + byte_size) are in an object of this size.
bool Fits(const SharedRegion& region, uint64_t size) {
  return region.offset <= size && region.byte_size <= size - region.offset;
}

}  // namespace

Status SharedWindow::OfRegion(const Status& status) const {
  if (status.ok()) return status;
  return Internal("shared memory region '" + region_ + "' " + status.message());
}

Result<std::string> SharedWindow::Read(uint64_t& left) const {
  if (byte_size_ > left) {
    return InvalidArgument("inputs from shared memory: a request may have " +
                           std::to_string(kMaxSharedInputBytes) + " bytes in all, region '" +
                           region_ + "' gives " + std::to_string(byte_size_) + " where " +
                           std::to_string(left) + " are left");
  }
  left -= byte_size_;
  std::string bytes(byte_size_, '\0');
  RETURN_IF_ERROR(OfRegion(object_->Read(offset_, std::as_writable_bytes(std::span(bytes)))));
  return bytes;
}

Status SharedWindow::Write(std::span<const std::byte> data) const {
  return OfRegion(object_->Write(offset_, data));
}

Status SharedMemory::CheckAllowed(const Registrant& from) const {
  if (!options_.clients_may_register) {
    return Unimplemented(
        "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to "
        "enable.");
  }
  if (options_.remote_peers || from.is_local) return Status::Ok();
  return {StatusCode::kPermissionDenied,
          "shared memory is for clients of the server's machine, and '" + from.client +
              "' is not a loopback address; start the server with "
              "'--shared-memory-remote-peers=true' to let others register regions"};
}

Status SharedMemory::CheckNewLocked(const Name& name) const {
  if (name.second.size() > kMaxRegionNameBytes) {
    return InvalidArgument("failed to register a shared memory region: " +
                           TooLong("name", name.second.size()));
  }
  if (HasControlBytes(name.second)) {
    return Refuse(name.second, "the name has control bytes; choose one without");
  }
  if (regions_.contains(name))
    return AlreadyExists("shared memory region '" + name.second + "' already in manager");
  if (regions_.size() >= kMaxRegions) {
    return ResourceExhausted("failed to register shared memory region '" + name.second +
                             "': there are " + std::to_string(kMaxRegions) +
                             ", as many as may be; unregister some");
  }
  return Status::Ok();
}

Status SharedMemory::CheckShareLocked(const std::string& name, const std::string& client,
                                      uint64_t object_bytes) const {
  int num_regions = 1;
  uint64_t num_bytes = object_bytes;
  for (const auto& [known, open] : regions_) {
    if (open.client != client) continue;
    ++num_regions;
    num_bytes += open.object_bytes;
  }
  const auto refuse = [&](const std::string& has, const std::string& option) {
    return ResourceExhausted("failed to register shared memory region '" + name +
                             "': with it the client would have " + has + " (" + option +
                             "); unregister some");
  };
  if (num_regions > options_.max_client_regions) {
    return refuse(std::to_string(num_regions) + " regions, and may have " +
                      std::to_string(options_.max_client_regions),
                  "--shared-memory-client-regions");
  }
  if (num_bytes > static_cast<uint64_t>(options_.max_client_bytes)) {
    return refuse(std::to_string(num_bytes) + " bytes of objects, and may have " +
                      std::to_string(options_.max_client_bytes),
                  "--shared-memory-client-bytes");
  }
  return Status::Ok();
}

Status SharedMemory::CheckKey(const SharedRegion& region) const {
  const std::string_view object_name = ObjectName(region.key);
  if (region.key.size() > kMaxRegionNameBytes) {
    return Refuse(region.name, TooLong("key", region.key.size()));
  }
  if (HasControlBytes(region.key)) {
    return Refuse(region.name, "the key has control bytes; choose one without");
  }
  if (object_name.starts_with(kReservedPrefix)) {
    return Refuse(region.name,
                  "keys that start with '" + std::string(kReservedPrefix) + "' are reserved");
  }
  const auto& prefixes = options_.prefixes;
  const bool is_allowed =
      prefixes.empty() || std::ranges::any_of(prefixes, [&](const std::string& prefix) {
        return object_name.starts_with(ObjectName(prefix));
      });
  if (is_allowed) return Status::Ok();
  return Refuse(region.name, "the key '" + region.key +
                                 "' begins with none of the prefixes that the server allows "
                                 "(--shared-memory-prefix)");
}

Status SharedMemory::Register(SharedRegion region, const Registrant& from) {
  RETURN_IF_ERROR(CheckAllowed(from));
  const Name name{from.identity, region.name};
  DropUnused();
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckNewLocked(name));
  RETURN_IF_ERROR(CheckKey(region));
  const std::string_view object_name = ObjectName(region.key);
  if (std::any_of(regions_.begin(), regions_.end(), [&](const auto& known) {
        const SharedRegion& other = known.second.region;
        return other.kind() == RegionKind::kSystem && ObjectName(other.key) == object_name;
      })) {
    return Internal("Invalid shared memory region: '" + region.key + "'");
  }
  auto opened = OpenPosixObject(region.key, options_.foreign_objects);
  if (opened.status().code() == StatusCode::kPermissionDenied) {
    return opened.status().WithMessage("failed to register shared memory region '" + region.name +
                                       "': " + opened.status().message() +
                                       " (--shared-memory-foreign-objects)");
  }
  ASSIGN_OR_RETURN(auto object, std::move(opened));
  const uint64_t object_bytes = object->byte_size();
  if (!Fits(region, object_bytes)) return Refuse(region.name, "invalid args");
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (region.byte_size == 0 || region.offset % page_bytes != 0) {
    return Refuse(region.name, "unable to process address spaceInvalid argument");
  }
  RETURN_IF_ERROR(CheckShareLocked(region.name, from.client, object_bytes));
  regions_.emplace(name, Open{std::move(region), std::move(object), from.client, object_bytes});
  return Status::Ok();
}

Status SharedMemory::RegisterCuda(SharedRegion region, std::string_view handle,
                                  const Registrant& from) {
  RETURN_IF_ERROR(CheckAllowed(from));
  if (open_cuda_ == nullptr) {
    return Refuse(region.name, "regions of GPUs are not supported by this server");
  }
  const Name name{from.identity, region.name};
  DropUnused();
  {
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(CheckNewLocked(name));
  }
  // Without the lock: the first use of a GPU takes its time, and requests look for their regions.
  auto object = open_cuda_(region.device_id.value_or(0), handle);
  if (!object.ok()) return Refuse(region.name, object.status().message());
  if (region.byte_size == 0 || !Fits(region, (*object)->byte_size())) {
    return Refuse(region.name, "invalid args");
  }
  const uint64_t object_bytes = (*object)->byte_size();
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(CheckNewLocked(name));
  RETURN_IF_ERROR(CheckShareLocked(region.name, from.client, object_bytes));
  regions_.emplace(name, Open{std::move(region), *std::move(object), from.client, object_bytes});
  return Status::Ok();
}

Status SharedMemory::Unregister(RegionKind kind, std::string_view name, const Registrant& from) {
  RETURN_IF_ERROR(CheckAllowed(from));
  {
    std::lock_guard lock(mutex_);
    for (auto& [known, open] : regions_) {
      const auto& [identity, known_name] = known;
      const bool is_meant = identity == from.identity && (name.empty() || known_name == name);
      if (!is_meant || open.is_leaving || open.region.kind() != kind) continue;
      open.is_leaving = true;
      ++num_leaving_;
    }
  }
  DropUnused();
  return Status::Ok();
}

std::vector<SharedMemory::Open> SharedMemory::TakeUnusedLocked() const {
  std::vector<Open> unused;
  for (auto known = regions_.begin(); num_leaving_ > 0 && known != regions_.end();) {
    if (!known->second.is_leaving || known->second.use.use_count() > 1) {
      ++known;
      continue;
    }
    unused.push_back(std::move(known->second));
    known = regions_.erase(known);
    --num_leaving_;
  }
  return unused;
}

void SharedMemory::DropUnused() {
  std::vector<Open> unused;
  const std::lock_guard lock(mutex_);
  unused = TakeUnusedLocked();
}

Result<std::vector<SharedRegion>> ClientRegions::Find(RegionKind kind,
                                                      std::string_view name) const {
  std::vector<SharedMemory::Open> unused;
  std::lock_guard lock(memory_.mutex_);
  unused = memory_.TakeUnusedLocked();
  std::vector<SharedRegion> found;
  for (const auto& [known, open] : memory_.regions_) {
    if (known.first != client_ || open.region.kind() != kind) continue;
    if (name.empty() || known.second == name) found.push_back(open.region);
  }
  if (found.empty() && !name.empty()) {
    return NotFound("Unable to find " + std::string(kind == RegionKind::kCuda ? "cuda" : "system") +
                    " shared memory region: '" + std::string(name) + "'");
  }
  return found;
}

Result<SharedWindow> ClientRegions::Window(std::string_view region, uint64_t offset,
                                           uint64_t byte_size) const {
  std::vector<SharedMemory::Open> unused;
  std::lock_guard lock(memory_.mutex_);
  unused = memory_.TakeUnusedLocked();
  const auto found = memory_.regions_.find({client_, std::string(region)});
  if (found == memory_.regions_.end()) {
    return NotFound("Unable to find shared memory region: '" + std::string(region) + "'");
  }
  const SharedRegion& known = found->second.region;
  if (offset >= known.byte_size) {
    return InvalidArgument("Invalid offset for shared memory region: '" + known.name + "'");
  }
  if (byte_size == 0 || byte_size > known.byte_size - offset) {
    return InvalidArgument("Invalid offset + byte size for shared memory region: '" + known.name +
                           "'");
  }
  SharedWindow window;
  window.object_ = found->second.object;
  window.use_ = found->second.use;
  window.region_ = known.name;
  window.offset_ = known.offset + offset;
  window.byte_size_ = byte_size;
  return window;
}

}  // namespace inflight::serving
