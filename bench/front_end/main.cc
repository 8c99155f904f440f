// SPDX-License-Identifier: Apache-2.0
// front_end_load LOAD HOST PORT MODEL PID [CONCURRENCY] [REPETITION] [DELAY_S] [MEASURE_S]
// LOAD: http-infer, http-stream, chat-stream, grpc-infer, grpc-stream. PID: of the server. Prints
// one line of JSON; bench/front_end/run.py makes a table of many.
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>

#include "bench/front_end/front_end_load.h"

int main(int argc, char** argv) {
  using namespace inflight::bench;
  const std::span<char*> args(argv, static_cast<size_t>(argc));
  const std::map<std::string, FrontEndLoad> loads = {{"http-infer", FrontEndLoad::kHttpInfer},
                                                     {"http-stream", FrontEndLoad::kHttpStream},
                                                     {"chat-stream", FrontEndLoad::kChatStream},
                                                     {"grpc-infer", FrontEndLoad::kGrpcInfer},
                                                     {"grpc-stream", FrontEndLoad::kGrpcStream}};
  if (args.size() < 6 || !loads.contains(args[1])) {
    fprintf(stderr,
            "usage: front_end_load http-infer|http-stream|chat-stream|grpc-infer|grpc-stream HOST "
            "PORT MODEL "
            "PID [CONCURRENCY] [REPETITION] [DELAY_S] [MEASURE_S]\n");
    return 1;
  }
  FrontEndOptions options{
      .load = loads.at(args[1]), .host = args[2], .port = std::atoi(args[3]), .model = args[4]};
  if (args.size() > 6) options.concurrency = std::atoi(args[6]);
  if (args.size() > 7) options.repetition = std::atoi(args[7]);
  if (args.size() > 8) options.delay_s = std::atof(args[8]);
  if (args.size() > 9) options.measure_s = std::atof(args[9]);

  clockid_t clock{};
  if (clock_getcpuclockid(std::atoi(args[5]), &clock) != 0) {
    fprintf(stderr, "PID: there is no process %s\n", args[5]);
    return 1;
  }
  Meter meter([clock] {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  });
  const bool is_http =
      options.load != FrontEndLoad::kGrpcInfer && options.load != FrontEndLoad::kGrpcStream;
  const std::string error = is_http ? RunHttpLoad(options, meter) : RunGrpcLoad(options, meter);
  if (!error.empty()) {
    fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  puts(meter.Report().c_str());
  return 0;
}
