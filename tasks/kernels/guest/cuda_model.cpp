/* Runs a grid on fibres and counts, per warp, what its memory requests cost. The kernel is compiled with -fsanitize=thread,
   and the hooks it then calls are these. The n-th time that an instruction runs in the lanes of a warp is one request. */
#include "cuda_model.h"
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <tuple>
#include <ucontext.h>
#include <vector>

uint3 threadIdx MODEL = {0, 0, 0}, blockIdx MODEL = {0, 0, 0};
dim3 blockDim MODEL = dim3(1), gridDim MODEL = dim3(1);
extern char __start_cuda_model[], __stop_cuda_model[];
extern char __start_cuda_shared[] __attribute__((weak)), __stop_cuda_shared[] __attribute__((weak));

namespace {
constexpr size_t STACK = 64 << 10, PAD = 1 << 16;
struct Fibre { ucontext_t at; std::vector<char> stack; bool over; };
struct Request { std::set<uintptr_t> bytes, sectors, words; };
struct Touch { long interval; int writer, reader; };
std::vector<std::pair<uintptr_t, uintptr_t>> buffers;
std::vector<Fibre> fibres;
std::map<std::tuple<bool, int, void*, long>, Request> requests;  /* shared?, warp, instruction, how often before */
std::map<std::pair<int, void*>, long> before;                    /* thread, instruction */
std::map<uintptr_t, Touch> touched;
std::function<void()> body;
ucontext_t scheduler;
int now;
long interval, outside, races, diverged, global_requests, sectors, asked, shared_requests, passes;
bool running;

bool within(uintptr_t at, size_t size, const void* from, const void* to) {
    return at >= (uintptr_t)from && at + size <= (uintptr_t)to;
}

void access(uintptr_t at, size_t size, bool write, void* pc) {
    if (!running || within(at, size, __start_cuda_model, __stop_cuda_model)) return;
    auto& stack = fibres[now].stack;
    if (within(at, size, stack.data(), stack.data() + stack.size())) return;
    bool shared = within(at, size, __start_cuda_shared, __stop_cuda_shared), known = shared;
    for (auto& [from, to] : buffers) known |= at >= from && at + size <= to;
    if (!known) { outside++; return; }
    auto& request = requests[{shared, now / 32, pc, before[{now, pc}]++}];
    for (size_t i = 0; i < size; i++) {
        request.bytes.insert(at + i);
        request.sectors.insert((at + i) / 32);
        request.words.insert((at + i) / 4);
        auto& touch = touched.try_emplace(at + i, Touch{interval, -1, -1}).first->second;
        if (touch.interval != interval) touch = {interval, -1, -1};
        bool other = touch.writer >= 0 && touch.writer != now;
        if (i == 0) races += other || (write && touch.reader >= 0 && touch.reader != now);
        (write ? touch.writer : touch.reader) = now;
    }
}

void close_block() {
    for (auto& [key, request] : requests) {
        if (!std::get<0>(key)) {
            global_requests++, sectors += request.sectors.size(), asked += request.bytes.size();
            continue;
        }
        long bank[32] = {0}, most = 0;
        for (uintptr_t word : request.words) most = std::max(most, ++bank[word % 32]);
        shared_requests++, passes += most;
    }
    requests.clear(), before.clear(), touched.clear();
}

void enter() {
    body();
    fibres[now].over = true;
    swapcontext(&fibres[now].at, &scheduler);
}

void run_block(int count) {
    fibres.resize(count);
    for (auto& fibre : fibres) {
        fibre.stack.resize(STACK), fibre.over = false;
        getcontext(&fibre.at);
        fibre.at.uc_stack.ss_sp = fibre.stack.data(), fibre.at.uc_stack.ss_size = STACK, fibre.at.uc_link = nullptr;
        makecontext(&fibre.at, enter, 0);
    }
    for (int left = count; left; interval++) {
        int at_start = left;
        for (now = 0; now < count; now++) {
            if (fibres[now].over) continue;
            threadIdx = {now % blockDim.x, now / blockDim.x % blockDim.y, now / blockDim.x / blockDim.y};
            running = true;
            swapcontext(&scheduler, &fibres[now].at);
            running = false;
            left -= fibres[now].over;
        }
        diverged += left && left < at_start; /* some ended where others wait */
    }
    close_block();
}
}  // namespace

void model_sync() { swapcontext(&fibres[now].at, &scheduler); }

/* Memory of the device, with room on both sides so that a wrong index is counted and harms nothing. */
void* model_alloc(size_t bytes) {
    char* data = (char*)aligned_alloc(4096, PAD * 2 + (bytes + 4095) / 4096 * 4096) + PAD;
    buffers.push_back({(uintptr_t)data, (uintptr_t)data + bytes});
    return data;
}

void model_launch(dim3 grid, dim3 block, std::function<void()> kernel) {
    body = kernel, gridDim = grid, blockDim = block;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = {x, y, z};
                run_block(block.x * block.y * block.z);
            }
}

void model_report() {
    printf("{\"global_requests\": %ld, \"sectors\": %ld, \"asked_bytes\": %ld, \"shared_requests\": %ld, \"bank_passes\": %ld, "
           "\"out_of_bounds\": %ld, \"races\": %ld, \"diverged_barriers\": %ld}\n",
           global_requests, sectors, asked, shared_requests, passes, outside, races, diverged);
}

#define HOOK(size)                                                                                                  \
    extern "C" void __tsan_read##size(void* p) { access((uintptr_t)p, size, false, __builtin_return_address(0)); }  \
    extern "C" void __tsan_write##size(void* p) { access((uintptr_t)p, size, true, __builtin_return_address(0)); }  \
    extern "C" void __tsan_unaligned_read##size(void* p) { access((uintptr_t)p, size, false, __builtin_return_address(0)); } \
    extern "C" void __tsan_unaligned_write##size(void* p) { access((uintptr_t)p, size, true, __builtin_return_address(0)); }
HOOK(1) HOOK(2) HOOK(4) HOOK(8) HOOK(16)
extern "C" void __tsan_read_range(void* p, size_t n) { access((uintptr_t)p, n, false, __builtin_return_address(0)); }
extern "C" void __tsan_write_range(void* p, size_t n) { access((uintptr_t)p, n, true, __builtin_return_address(0)); }
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_init() {}
