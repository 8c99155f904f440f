// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

namespace inflight::tool {
namespace {

constexpr Command kCommands[] = {
    {"serve", "serve models over HTTP and gRPC", ServeMain, ServeManual},
    {"run", "generate without a server: a prompt, or a file of requests", RunMain, RunManual},
    {"chat", "talk with a model in the terminal", ChatMain, ChatManual},
    {"pull", "download a model from the hub of Hugging Face", PullMain, PullManual},
    {"list", "the models that are on this machine's disk", ListMain, ListManual},
    {"rm", "remove a model from the disk", RmMain, RmManual},
    {"ps", "what a running server serves and does", PsMain, PsManual},
    {"sleep", "a running server gives a model's memory back", SleepMain, SleepManual},
    {"wake", "and takes it again", WakeMain, WakeManual},
    {"tokenize", "text to token ids and back", TokenizeMain, TokenizeManual},
    {"convert", "Hugging Face directory to checkpoint", ConvertMain, ConvertManual},
    {"build", "checkpoint or Hugging Face directory to engine", BuildMain, BuildManual},
    {"adapter", "adapter (LoRA) of peft to the arrays that requests send", AdapterMain,
     AdapterManual},
    {"inspect", "what is in a model, checkpoint, engine or repository, and its memory plan",
     InspectMain, InspectManual},
    {"replay", "what a server recorded, step by step once more, and in what it differs", ReplayMain,
     ReplayManual},
    {"verify", "an answer's receipt, computed again: whether the model gives these tokens",
     VerifyMain, VerifyManual},
    {"doctor", "what of this machine stands in a server's way, and what to change", DoctorMain,
     DoctorManual},
    {"top", "what a server does now, by its metrics, in the terminal", TopMain, TopManual},
    {"migrate", "what of a deployment of the TensorRT-LLM backend runs as it is, and what to do",
     MigrateMain, MigrateManual},
    {"compat", "lay out the scripts and model repositories that the backend's guides name",
     CompatMain, CompatManual},
    {"shadow", "the same requests to two servers over HTTP, and how their answers differ",
     ShadowMain, ShadowManual},
    {"bench", "measure generation beside this machine's limits", BenchMain, BenchManual},
    {"bench throughput", "output tokens a second of many requests at once, beside the limit",
     BenchThroughputMain, BenchThroughputManual},
    {"bench latency", "first token and inter-token time of one request at a time", BenchLatencyMain,
     BenchLatencyManual},
    {"bench mixes", "what decoding features cost the steps that they share with plain rows",
     BenchMixesMain, BenchMixesManual},
    {"bench sleep", "what giving a model's memory back and taking it again takes", BenchSleepMain,
     BenchSleepManual},
    {"bench load", "measure a running server over the wire", BenchLoadMain, BenchLoadManual},
    {"key", "a new key for clients of a server", KeyMain, KeyManual},
    {"completion", "a script that completes commands, options and values in a shell",
     CompletionMain, CompletionManual},
    {"man", "the manual page of a command, or all of them as files", ManMain, ManManual},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

}  // namespace inflight::tool
