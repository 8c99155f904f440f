// SPDX-License-Identifier: Apache-2.0
#include "serving/memory/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/machine_fixture.h"
#include "serving/testing/fake_shared_gpu.h"

namespace inflight::serving {
namespace {

// A POSIX object of the test's own, removed with it.
class Object {
 public:
  Object(const std::string& name, size_t bytes)
      : key_("/inflight_" + name + "_" + std::to_string(getpid())),
        fd_(shm_open(key_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600)) {
    Resize(bytes);
  }
  ~Object() {
    close(fd_);
    shm_unlink(key_.c_str());
  }
  void Resize(size_t bytes) const { EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0); }
  void Put(size_t offset, const std::string& text) const {
    EXPECT_EQ(pwrite(fd_, text.data(), text.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(text.size()));
  }
  std::string Get(size_t offset, size_t bytes) const {
    std::string text(bytes, '?');
    EXPECT_EQ(pread(fd_, text.data(), bytes, static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes));
    return text;
  }
  const std::string& key() const { return key_; }

 private:
  const std::string key_;
  const int fd_;
};

const SharedMemoryOptions kAllowed{.clients_may_register = true, .prefixes = {}};
const Registrant kHere{.client = "127.0.0.1", .is_local = true};
const Registrant kElsewhere{.client = "192.0.2.7", .is_local = false};

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

class SharedMemoryTest : public ::testing::Test {
 protected:
  std::string Refusal(const std::string& region, uint64_t offset, uint64_t size) const {
    return memory_.Of({}).Window(region, offset, size).status().message();
  }
  SharedMemory memory_{kAllowed};
};

Result<std::string> Read(const SharedWindow& window, uint64_t left = kMaxSharedInputBytes) {
  return window.Read(left);
}

TEST_F(SharedMemoryTest, WindowsReadAndWriteTheirBytesAlone) {
  const Object object("rw", 64);
  object.Put(0, "0123456789");
  ASSERT_TRUE(memory_.Register({"r", object.key(), 0, 32}, kHere).ok());
  const auto window = memory_.Of({}).Window("r", 2, 4);
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(*Read(*window), "2345");
  EXPECT_TRUE(window->Write(Bytes("ab")).ok());
  EXPECT_EQ(object.Get(0, 10), "01ab456789");
}

TEST_F(SharedMemoryTest, NothingOutsideTheRegionCanBeNamed) {
  const Object object("bounds", 64);
  ASSERT_TRUE(memory_.Register({"r", object.key(), 0, 32}, kHere).ok());
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(Refusal("r", 32, 1), "Invalid offset for shared memory region: 'r'");
  EXPECT_EQ(Refusal("r", kHuge, 2), "Invalid offset for shared memory region: 'r'");
  for (const auto& [offset, size] :
       {std::pair<uint64_t, uint64_t>{0, 33}, {31, 2}, {16, kHuge}, {0, 0}}) {
    EXPECT_EQ(Refusal("r", offset, size),
              "Invalid offset + byte size for shared memory region: 'r'");
  }
  EXPECT_EQ(Refusal("x", 0, 1), "Unable to find shared memory region: 'x'");
}

TEST_F(SharedMemoryTest, ARequestCopiesOnlySoMuch) {
  const Object object("left", 64);
  ASSERT_TRUE(memory_.Register({"r", object.key(), 0, 64}, kHere).ok());
  const auto window = memory_.Of({}).Window("r", 0, 40);
  uint64_t left = 64;
  EXPECT_TRUE(window->Read(left).ok());
  EXPECT_EQ(left, 24);
  const Status refused = window->Read(left).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      refused.message(),
      "inputs from shared memory: a request may have 2147483648 bytes in all, region 'r' gives "
      "40 where 24 are left");
  EXPECT_EQ(left, 24);
}

// A mapping would end the process here.
TEST_F(SharedMemoryTest, AnObjectThatShrankGivesAnError) {
  const Object object("shrink", 4096);
  ASSERT_TRUE(memory_.Register({"r", object.key(), 0, 4096}, kHere).ok());
  const auto window = memory_.Of({}).Window("r", 0, 4096);
  object.Resize(16);
  EXPECT_EQ(Read(*window).status().code(), StatusCode::kInternal);
  EXPECT_EQ(window->Write(Bytes(std::string(17, 'x'))).code(), StatusCode::kInternal);
  EXPECT_EQ(lseek(open(("/dev/shm" + object.key()).c_str(), O_RDONLY), 0, SEEK_END), 16);
}

TEST_F(SharedMemoryTest, AWindowOutlivesItsRegionAndItsName) {
  const Object object("outlive", 16);
  object.Put(0, "abcd");
  ASSERT_TRUE(memory_.Register({"r", object.key(), 0, 16}, kHere).ok());
  auto window = memory_.Of({}).Window("r", 0, 4);
  (void)window->TakeUse();
  shm_unlink(object.key().c_str());
  EXPECT_TRUE(memory_.Unregister(RegionKind::kSystem, "r", kHere).ok());
  EXPECT_EQ(*Read(*window), "abcd");
}

TEST_F(SharedMemoryTest, ARegionInUseStaysUntilThatEnds) {
  const Object object("used", 16);
  ASSERT_TRUE(memory_.Register({"r", object.key(), 0, 16}, kHere).ok());
  RegionUse use = memory_.Of({}).Window("r", 0, 4)->TakeUse();
  EXPECT_TRUE(memory_.Unregister(RegionKind::kSystem, "", kHere).ok());
  EXPECT_EQ(memory_.Of({}).Find(RegionKind::kSystem, "")->size(), 1U);
  EXPECT_EQ(memory_.Register({"r", object.key(), 0, 16}, kHere).code(), StatusCode::kAlreadyExists);
  use = nullptr;
  EXPECT_TRUE(memory_.Of({}).Find(RegionKind::kSystem, "")->empty());
  EXPECT_TRUE(memory_.Register({"r", object.key(), 0, 16}, kHere).ok());
}

TEST_F(SharedMemoryTest, AnObjectHasOneRegionHoweverItsKeyIsSpelt) {
  const Object object("slashes", 64);
  ASSERT_TRUE(memory_.Register({"r", object.key(), 0, 32}, kHere).ok());
  for (const std::string& key :
       {"/" + object.key(), "///" + object.key(), object.key().substr(1)}) {
    EXPECT_EQ(memory_.Register({"other", key, 0, 32}, kHere).ToString(),
              "INTERNAL: Invalid shared memory region: '" + key + "'");
  }
  EXPECT_EQ(
      memory_.Register({"other", "//triton_python_backend_shm_region_x", 0, 32}, kHere).code(),
      StatusCode::kInvalidArgument);
}

TEST_F(SharedMemoryTest, RegionsAreCounted) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  ASSERT_GT(files.rlim_max, kMaxRegions + 100);
  std::vector<std::unique_ptr<Object>> objects;
  for (size_t i = 0; i < kMaxRegions; ++i) {
    objects.push_back(std::make_unique<Object>("many" + std::to_string(i), 16));
    const Registrant from{.client = std::to_string(i % 2), .is_local = true};
    ASSERT_TRUE(memory_.Register({std::to_string(i), objects.back()->key(), 0, 16}, from).ok());
    objects.back().reset();  // its region keeps it
  }
  const Object more("more", 16);
  EXPECT_EQ(memory_.Register({"more", more.key(), 0, 16}, kHere).code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(memory_.Unregister(RegionKind::kSystem, "7", kHere).ok());
  EXPECT_TRUE(memory_.Register({"more", more.key(), 0, 16}, kHere).ok());
}

TEST_F(SharedMemoryTest, RegistrationsThatCannotBeAreRefused) {
  const Object object("refuse", 8192);
  const auto register_as = [&](SharedRegion region) {
    return memory_.Register(std::move(region), kHere).ToString();
  };
  EXPECT_EQ(register_as({"r", "/inflight_no_such", 0, 1}),
            "INTERNAL: Unable to open shared memory region: '/inflight_no_such'");
  EXPECT_EQ(register_as({"r", object.key(), 0, 8193}),
            "INVALID_ARGUMENT: failed to register shared memory region 'r': invalid args");
  EXPECT_EQ(register_as({"r", object.key(), 8193, 1}),
            "INVALID_ARGUMENT: failed to register shared memory region 'r': invalid args");
  for (const auto& [offset, size] : {std::pair<uint64_t, uint64_t>{1, 1}, {0, 0}}) {
    EXPECT_EQ(register_as({"r", object.key(), offset, size}),
              "INVALID_ARGUMENT: failed to register shared memory region 'r': unable to process "
              "address spaceInvalid argument");
  }
  EXPECT_TRUE(memory_.Register({"r", object.key(), 4096, 16}, kHere).ok());
  EXPECT_EQ(register_as({"r", object.key(), 0, 16}),
            "ALREADY_EXISTS: shared memory region 'r' already in manager");
  EXPECT_EQ(memory_.Register({"p", "/triton_python_backend_shm_region_1", 0, 1}, kHere).code(),
            StatusCode::kInvalidArgument);
}

SharedRegion CudaRegion(const std::string& name, uint64_t byte_size, int64_t device = 0) {
  return {.name = name, .key = {}, .byte_size = byte_size, .device_id = device};
}

class CudaSharedMemoryTest : public ::testing::Test {
 protected:
  FakeSharedGpu gpu_;
  SharedMemory memory_{kAllowed, gpu_.Opener()};
};

TEST_F(CudaSharedMemoryTest, WindowsCopyFromTheDeviceAndToIt) {
  ASSERT_TRUE(memory_.RegisterCuda(CudaRegion("g", 6, 3), "h", kHere).ok());
  EXPECT_EQ(gpu_.device(), 3);
  const auto window = memory_.Of({}).Window("g", 2, 4);
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(*Read(*window), "2345");
  EXPECT_TRUE(window->Write(Bytes("ab")).ok());
  EXPECT_EQ(gpu_.bytes, "01ab4567");
  uint64_t left = 3;
  EXPECT_EQ(window->Read(left).status().code(), StatusCode::kInvalidArgument);
  gpu_.is_broken = true;
  EXPECT_EQ(Read(*window).status(),
            Internal("shared memory region 'g' cannot be copied: device lost"));
}

TEST_F(CudaSharedMemoryTest, NothingOutsideTheRegionCanBeNamed) {
  ASSERT_TRUE(memory_.RegisterCuda(CudaRegion("g", 6), "h", kHere).ok());
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(memory_.Of({}).Window("g", 6, 1).status().message(),
            "Invalid offset for shared memory region: 'g'");
  for (const auto& [offset, size] :
       {std::pair<uint64_t, uint64_t>{0, 7}, {5, 2}, {3, kHuge}, {0, 0}}) {
    EXPECT_EQ(memory_.Of({}).Window("g", offset, size).status().message(),
              "Invalid offset + byte size for shared memory region: 'g'");
  }
}

TEST_F(CudaSharedMemoryTest, RegistrationsThatCannotBeAreRefused) {
  const auto refusal = [&](const SharedRegion& region, const std::string& handle) {
    return memory_.RegisterCuda(region, handle, kHere).ToString();
  };
  EXPECT_EQ(refusal(CudaRegion("g", 4), "x"),
            "INVALID_ARGUMENT: failed to register shared memory region 'g': failed to open CUDA "
            "IPC handle: invalid argument");
  for (const uint64_t size : {uint64_t{0}, uint64_t{9}, std::numeric_limits<uint64_t>::max()}) {
    EXPECT_EQ(refusal(CudaRegion("g", size), "h"),
              "INVALID_ARGUMENT: failed to register shared memory region 'g': invalid args");
  }
  EXPECT_EQ(gpu_.num_open(), 0);
  SharedMemory without_gpus(kAllowed);
  EXPECT_EQ(without_gpus.RegisterCuda(CudaRegion("g", 4), "h", kHere).ToString(),
            "INVALID_ARGUMENT: failed to register shared memory region 'g': regions of GPUs are "
            "not supported by this server");
  SharedMemory off(SharedMemoryOptions{}, gpu_.Opener());
  EXPECT_EQ(off.RegisterCuda(CudaRegion("g", 4), "h", kHere).code(), StatusCode::kUnimplemented);
}

TEST_F(CudaSharedMemoryTest, NeitherNamesNorKeysHaveControlBytes) {
  const Object object("control", 64);
  for (const std::string& bytes :
       {std::string("\0x", 2), std::string("\n"), std::string("\x7f"), std::string("\x1b[2J")}) {
    const Status key = memory_.Register({"r", object.key() + bytes, 0, 32}, kHere);
    EXPECT_EQ(key, InvalidArgument("failed to register shared memory region 'r': the key has "
                                   "control bytes; choose one without"));
    for (const Status& name : {memory_.Register({"r" + bytes, object.key(), 0, 32}, kHere),
                               memory_.RegisterCuda(CudaRegion("r" + bytes, 4), "h", kHere)}) {
      EXPECT_EQ(name, InvalidArgument("failed to register shared memory region 'r" + bytes +
                                      "': the name has control bytes; choose one without"));
    }
  }
  EXPECT_EQ(gpu_.num_open(), 0);
  EXPECT_TRUE(memory_.Register({"r\xc3\xa9", object.key(), 0, 32}, kHere).ok()) << "UTF-8 is none";
}

// Of an object's name slashes before it are no part, however many: what is kept has a bound.
TEST_F(CudaSharedMemoryTest, NamesAndKeysHaveABound) {
  const Object object("long", 64);
  const std::string most(kMaxRegionNameBytes, 'n');
  const std::string slashes(kMaxRegionNameBytes - object.key().size(), '/');
  EXPECT_EQ(memory_.Register({"r", "/" + slashes + object.key(), 0, 32}, kHere),
            InvalidArgument("failed to register shared memory region 'r': the key has 1025 bytes, "
                            "at most 1024 are allowed"));
  for (const Status& refused : {memory_.Register({most + "n", object.key(), 0, 32}, kHere),
                                memory_.RegisterCuda(CudaRegion(most + "n", 4), "h", kHere)}) {
    EXPECT_EQ(refused, InvalidArgument("failed to register a shared memory region: the name has "
                                       "1025 bytes, at most 1024 are allowed"));
  }
  EXPECT_TRUE(memory_.Register({most, slashes + object.key(), 0, 32}, kHere).ok());
}

TEST_F(CudaSharedMemoryTest, BothKindsShareNamesAndAreDroppedApart) {
  const Object object("kinds", 16);
  ASSERT_TRUE(memory_.Register({"s", object.key(), 0, 16}, kHere).ok());
  ASSERT_TRUE(memory_.RegisterCuda(CudaRegion("g", 8, 1), "h", kHere).ok());
  EXPECT_EQ(memory_.RegisterCuda(CudaRegion("s", 8), "h", kHere).message(),
            "shared memory region 's' already in manager");
  EXPECT_EQ(memory_.Register({"g", object.key(), 0, 16}, kHere).code(), StatusCode::kAlreadyExists);
  const auto found = memory_.Of({}).Find(RegionKind::kCuda, "");
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().name, "g");
  EXPECT_EQ(found->front().device_id, 1);
  EXPECT_EQ(memory_.Of({}).Find(RegionKind::kCuda, "s").status().message(),
            "Unable to find cuda shared memory region: 's'");
  EXPECT_EQ(memory_.Of({}).Find(RegionKind::kSystem, "g").status().code(), StatusCode::kNotFound);

  EXPECT_TRUE(memory_.Unregister(RegionKind::kSystem, "g", kHere).ok());
  EXPECT_TRUE(memory_.Unregister(RegionKind::kCuda, "s", kHere).ok());
  EXPECT_TRUE(memory_.Of({}).Window("g", 0, 8).ok() && memory_.Of({}).Window("s", 0, 16).ok());
  EXPECT_TRUE(memory_.Unregister(RegionKind::kSystem, "", kHere).ok());
  EXPECT_FALSE(memory_.Of({}).Window("s", 0, 16).ok());
  EXPECT_EQ(gpu_.num_open(), 1);
}

TEST_F(CudaSharedMemoryTest, RegionsAreFoundWhileAHandleIsOpened) {
  const Object object("meanwhile", 16);
  SharedMemory* found = nullptr;
  SharedMemory memory(kAllowed, [&](int64_t device, std::string_view handle) {
    EXPECT_TRUE(found->Register({"g", object.key(), 0, 16}, kHere).ok());
    EXPECT_TRUE(found->Of({}).Window("g", 0, 16).ok());
    return gpu_.Opener()(device, handle);
  });
  found = &memory;
  EXPECT_EQ(memory.RegisterCuda(CudaRegion("g", 8), "h", kHere).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(gpu_.num_open(), 0);
}

TEST_F(CudaSharedMemoryTest, AHandleStaysOpenWhileAWindowOfItsRegionIsInUse) {
  ASSERT_TRUE(memory_.RegisterCuda(CudaRegion("g", 8), "h", kHere).ok());
  {
    auto window = memory_.Of({}).Window("g", 0, 2);
    (void)window->TakeUse();
    EXPECT_TRUE(memory_.Unregister(RegionKind::kCuda, "g", kHere).ok());
    EXPECT_EQ(memory_.Of({}).Window("g", 0, 2).status().code(), StatusCode::kNotFound);
    EXPECT_EQ(*Read(*window), "01");
    EXPECT_EQ(gpu_.num_open(), 1);
  }
  EXPECT_EQ(gpu_.num_open(), 0);
}

TEST_F(SharedMemoryTest, SwitchedOffNothingIsRegistered) {
  SharedMemory off(SharedMemoryOptions{});
  EXPECT_EQ(off.Register({"r", "/x", 0, 1}, kHere).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(off.Unregister(RegionKind::kSystem, "r", kHere).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(off.Unregister(RegionKind::kSystem, "", kHere).code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(off.Of({}).Find(RegionKind::kSystem, "")->empty());
}

// --- who may register what ---

TEST_F(CudaSharedMemoryTest, RegionsAreForClientsOfThisMachine) {
  const Object object("peers", 16);
  ASSERT_TRUE(memory_.Register({"r", object.key(), 0, 16}, kHere).ok());
  for (const Status& status : {memory_.Register({"other", object.key(), 0, 16}, kElsewhere),
                               memory_.RegisterCuda(CudaRegion("g", 8), "h", kElsewhere),
                               memory_.Unregister(RegionKind::kSystem, "r", kElsewhere),
                               memory_.Unregister(RegionKind::kCuda, "", kElsewhere)}) {
    EXPECT_EQ(status.ToString(),
              "PERMISSION_DENIED: shared memory is for clients of the server's machine, and "
              "'192.0.2.7' is not a loopback address; start the server with "
              "'--shared-memory-remote-peers=true' to let others register regions");
  }
  EXPECT_TRUE(memory_.Of({}).Window("r", 0, 16).ok());
  SharedMemory open({.clients_may_register = true, .prefixes = {}, .remote_peers = true},
                    gpu_.Opener());
  EXPECT_TRUE(open.Register({"r", object.key(), 0, 16}, kElsewhere).ok());
  EXPECT_TRUE(open.RegisterCuda(CudaRegion("g", 8), "h", kElsewhere).ok());
  EXPECT_TRUE(open.Unregister(RegionKind::kSystem, "r", kElsewhere).ok());
}

TEST_F(CudaSharedMemoryTest, RegionsAreOfTheIdentityThatRegisteredThem) {
  const Object object("owned", 16);
  const Object other("others", 16);
  object.Put(0, "alice's");
  const Registrant alice{.client = "key alice", .is_local = true, .identity = {1}};
  const Registrant bob{.client = "key bob", .is_local = true, .identity = {2}};
  ASSERT_TRUE(memory_.Register({"r", object.key(), 0, 16}, alice).ok());
  ASSERT_TRUE(memory_.RegisterCuda(CudaRegion("g", 8), "h", alice).ok());
  for (const Registrant& from : {bob, kHere}) {
    const ClientRegions own = memory_.Of(from.identity);
    for (const char* name : {"r", "g"}) {
      EXPECT_EQ(own.Window(name, 0, 1).status().message(),
                "Unable to find shared memory region: '" + std::string(name) + "'");
    }
    for (const RegionKind kind : {RegionKind::kSystem, RegionKind::kCuda}) {
      EXPECT_TRUE(own.Find(kind, "")->empty());
      EXPECT_TRUE(memory_.Unregister(kind, "", from).ok());
    }
    EXPECT_EQ(own.Find(RegionKind::kSystem, "r").status().code(), StatusCode::kNotFound);
    // Nor by the object, which has one region.
    EXPECT_EQ(memory_.Register({"r", object.key(), 0, 16}, from).code(), StatusCode::kInternal);
  }
  // Names are each identity's own.
  EXPECT_TRUE(memory_.Register({"r", other.key(), 0, 16}, bob).ok());
  EXPECT_TRUE(memory_.Unregister(RegionKind::kSystem, "r", bob).ok());
  EXPECT_EQ(*Read(*memory_.Of(alice.identity).Window("r", 0, 7)), "alice's");
  EXPECT_EQ(memory_.Of(alice.identity).Find(RegionKind::kCuda, "g")->size(), 1U);
}

TEST_F(SharedMemoryTest, NamesBeginAsTheServerAllows) {
  const Object object("prefix", 16);
  const auto registered = [&](std::vector<std::string> prefixes) {
    SharedMemory memory({.clients_may_register = true, .prefixes = std::move(prefixes)});
    return memory.Register({"r", object.key(), 0, 16}, kHere);
  };
  EXPECT_TRUE(registered({}).ok());
  EXPECT_TRUE(registered({"inflight_pre"}).ok());
  EXPECT_TRUE(registered({"app_", "/inflight_"}).ok());
  EXPECT_EQ(registered({"app_", "nflight_"}).ToString(),
            "INVALID_ARGUMENT: failed to register shared memory region 'r': the key '" +
                object.key() +
                "' begins with none of the prefixes that the server allows "
                "(--shared-memory-prefix)");
}

TEST_F(SharedMemoryTest, ObjectsOfOtherUsersAreNotOpened) {
  if (geteuid() != 0) SKIP_FOR_LACK_OF("root here, who alone gives objects away");
  const Object object("owner", 16);
  ASSERT_EQ(chown(("/dev/shm" + object.key()).c_str(), 65534, 65534), 0);
  EXPECT_EQ(memory_.Register({"r", object.key(), 0, 16}, kHere).ToString(),
            "PERMISSION_DENIED: failed to register shared memory region 'r': the object '" +
                object.key() +
                "' belongs to another user than the server runs as "
                "(--shared-memory-foreign-objects)");
  SharedMemory open({.clients_may_register = true, .prefixes = {}, .foreign_objects = true});
  EXPECT_TRUE(open.Register({"r", object.key(), 0, 16}, kHere).ok());
}

TEST_F(CudaSharedMemoryTest, OneClientHasItsShareOfRegionsAndBytes) {
  const Object one("one", 16);
  const Object two("two", 16);
  const auto limited = [&](int regions, int64_t bytes) {
    return std::make_unique<SharedMemory>(SharedMemoryOptions{.clients_may_register = true,
                                                              .prefixes = {},
                                                              .max_client_regions = regions,
                                                              .max_client_bytes = bytes},
                                          gpu_.Opener());
  };
  const Registrant other{.client = "::1", .is_local = true};
  for (const auto& memory : {limited(1, 1000), limited(100, 16)}) {
    const int num_open = gpu_.num_open();
    // Of an object that is registered in part all bytes stay with it.
    ASSERT_TRUE(memory->Register({"1", one.key(), 0, 4}, kHere).ok());
    for (const Status& status : {memory->Register({"2", two.key(), 0, 4}, kHere),
                                 memory->RegisterCuda(CudaRegion("2", 4), "h", kHere)}) {
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
    }
    EXPECT_EQ(gpu_.num_open(), num_open);
    EXPECT_TRUE(memory->Register({"2", two.key(), 0, 4}, other).ok());
    EXPECT_TRUE(memory->Unregister(RegionKind::kSystem, "1", kHere).ok());
    EXPECT_TRUE(memory->RegisterCuda(CudaRegion("1", 4), "h", kHere).ok());
  }
}

}  // namespace
}  // namespace inflight::serving
