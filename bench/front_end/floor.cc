// SPDX-License-Identifier: Apache-2.0
// front_end_floor PORT: the least that a server over HTTP can do. One thread reads whatever comes
// on a connection and sends the same answer, without looking at it: what is left is what the
// system takes for a request, its sleep and its wake-up.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

constexpr std::string_view kAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

void Watch(int epoll, int socket) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = socket}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event);
}

int Listen(int port) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool listens = bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                       listen(listener, 4096) == 0;
  return listens ? listener : -1;
}

}  // namespace

int main(int argc, char** argv) {
  const int listener = argc == 2 ? Listen(std::atoi(argv[1])) : -1;
  if (listener < 0) {
    fprintf(stderr, "usage: front_end_floor PORT, which has to be free\n");
    return 1;
  }
  const int epoll = epoll_create1(0);
  Watch(epoll, listener);
  static char buffer[64 * 1024];  // a request of the load comes whole
  epoll_event events[256];
  while (true) {
    const int count = epoll_wait(epoll, events, 256, -1);
    for (int i = 0; i < count; ++i) {
      const int socket = events[i].data.fd;
      if (socket == listener) {
        const int accepted = accept(listener, nullptr, nullptr);
        const int on = 1;
        setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        Watch(epoll, accepted);
      } else if (recv(socket, buffer, sizeof buffer, 0) <= 0 ||
                 send(socket, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL) < 0) {
        close(socket);
      }
    }
  }
}
