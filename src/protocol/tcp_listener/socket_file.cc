// SPDX-License-Identifier: Apache-2.0
#include "protocol/tcp_listener/socket_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/descriptor.h"
#include "base/status_macros.h"

namespace inflight::tcp_listener {
namespace {

constexpr size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;

Status Failed(const std::string& what) {
  return Unavailable(what + ": " + std::generic_category().message(errno));
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// Of two servers that start at once, so that neither takes the other's file for a left one.
Status Lock(const Descriptor& folder) {
  if (!folder.ok()) return Failed("its folder cannot be opened");
  if (flock(folder.get(), LOCK_EX | LOCK_NB) == 0) return Status::Ok();
  return Failed("another program holds the lock of its folder, as a server that starts does");
}

// Makes way for a new file where the one at `path` is a socket that nobody listens to.
Status RemoveLeft(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0)
    return errno == ENOENT ? Status::Ok() : Failed("it cannot be looked at");
  if (!S_ISSOCK(found.st_mode))
    return Unavailable("the file is no socket; remove it or name another");
  const Descriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe.ok()) return Failed("no socket can be made");
  const sockaddr_un address = AddressOf(path);
  const int answer =
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (answer == 0 || errno == EAGAIN)
    return Unavailable("a server answers there; name another file or stop that one");
  if (errno != ECONNREFUSED) return Failed("what is there cannot be asked");
  return unlink(path.c_str()) == 0 ? Status::Ok() : Failed("a left file cannot be removed");
}

// Numbers of inodes are given anew, so that the time of the making counts too.
bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

Result<std::unique_ptr<SocketFile>> SocketFile::Listen(int descriptor, const std::string& path,
                                                       int backlog) {
  if (path.size() > kMaxPathBytes) {
    return InvalidArgument("the path has " + std::to_string(path.size()) + " bytes, at most " +
                           std::to_string(kMaxPathBytes) + " are allowed");
  }
  const auto parent = std::filesystem::path(path).parent_path();
  const Descriptor folder(
      open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  RETURN_IF_ERROR(Lock(folder));
  RETURN_IF_ERROR(RemoveLeft(path));
  const sockaddr_un address = AddressOf(path);
  // The file is made with the socket's own mode.
  if (fchmod(descriptor, S_IRUSR | S_IWUSR) != 0) return Failed("its mode cannot be set");
  if (bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Failed("it cannot be made");
  struct stat made {};
  if (lstat(path.c_str(), &made) != 0) return Failed("it cannot be looked at");
  std::unique_ptr<SocketFile> file(new SocketFile(path, made));
  if (listen(descriptor, backlog) != 0) return Failed("it cannot be listened to");
  return file;
}

SocketFile::~SocketFile() {
  struct stat found {};
  if (lstat(path_.c_str(), &found) == 0 && IsSame(found, made_)) unlink(path_.c_str());
}

}  // namespace inflight::tcp_listener
