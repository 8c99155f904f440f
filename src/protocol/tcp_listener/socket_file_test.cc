// SPDX-License-Identifier: Apache-2.0
#include "protocol/tcp_listener/socket_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace inflight::tcp_listener {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class SocketFileTest : public testing::Test {
 protected:
  SocketFileTest() {
    std::string name = (fs::temp_directory_path() / "socket_file_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ / "admin.sock";
  }
  ~SocketFileTest() override { fs::remove_all(folder_); }

  // A socket that listens at `path_`; its file is left when it is closed.
  struct Listening {
    ~Listening() { Close(); }
    void Close() {
      if (descriptor >= 0) close(descriptor);
      descriptor = -1;
    }
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  };

  static Result<std::unique_ptr<SocketFile>> Listen(const Listening& socket,
                                                    const std::string& path) {
    return SocketFile::Listen(socket.descriptor, path, /*backlog=*/8);
  }
  std::string Error(const std::string& path) const {
    const Listening socket;
    return Listen(socket, path).status().message();
  }

  bool Answers() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    const Listening client;
    return connect(client.descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }

  // As a process leaves it that is killed.
  void LeaveFile() const {
    Listening socket;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(bind(socket.descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(listen(socket.descriptor, 1), 0);
  }

  fs::path folder_;
  fs::path path_;
};

TEST_F(SocketFileTest, ItsOwnerAloneMayConnectAndItGoesWithItsServer) {
  const mode_t former = umask(0);
  const Listening socket;
  {
    const auto file = Listen(socket, path_);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_EQ(fs::status(path_).type(), fs::file_type::socket);
    EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    EXPECT_TRUE(Answers());
  }
  umask(former);
  EXPECT_FALSE(fs::exists(fs::symlink_status(path_)));
}

TEST_F(SocketFileTest, WhatADeadServerLeftIsReplaced) {
  LeaveFile();
  ASSERT_TRUE(fs::exists(path_));
  EXPECT_FALSE(Answers());
  const Listening socket;
  const auto file = Listen(socket, path_);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_TRUE(Answers());
}

TEST_F(SocketFileTest, ALiveServersFileStays) {
  const Listening socket;
  const auto file = Listen(socket, path_);
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(Error(path_), HasSubstr("a server answers there"));
  EXPECT_TRUE(Answers());
}

TEST_F(SocketFileTest, OtherFilesAndLinksStay) {
  std::ofstream(path_) << "content";
  EXPECT_THAT(Error(path_), HasSubstr("the file is no socket"));
  EXPECT_EQ(fs::file_size(path_), 7U);
  const fs::path link = folder_ / "link";
  fs::create_symlink(folder_ / "absent", link);
  EXPECT_THAT(Error(link), HasSubstr("the file is no socket"));
  EXPECT_TRUE(fs::is_symlink(link));
}

TEST_F(SocketFileTest, AnothersFileIsNotTakenAway) {
  const Listening socket;
  {
    const auto file = Listen(socket, path_);
    ASSERT_TRUE(file.ok());
    fs::remove(path_);
    std::ofstream(path_) << "another's";
  }
  EXPECT_TRUE(fs::is_regular_file(path_));
}

TEST_F(SocketFileTest, TwoThatStartAtOnceDoNotTakeEachOthersFile) {
  LeaveFile();
  const int other = open(folder_.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  EXPECT_THAT(Error(path_), HasSubstr("holds the lock of its folder"));
  close(other);
  EXPECT_EQ(Error(path_), "");
}

TEST_F(SocketFileTest, PathsHaveABound) {
  EXPECT_THAT(Error(folder_ / std::string(200, 'x')), HasSubstr("at most 107 are allowed"));
  EXPECT_THAT(Error(folder_ / "absent" / "admin.sock"), HasSubstr("its folder cannot be opened"));
}

}  // namespace
}  // namespace inflight::tcp_listener
