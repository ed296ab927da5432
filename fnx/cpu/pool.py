"""The text of the thread pool: parked native workers that share the rounds of a loop.

`@fnx_run(ptr part, ptr context, i64 rounds, i64 chunk)` has `part(context, begin, end)`
run for every chunk of the rounds and returns when all are done. The caller works too;
workers that are awake help it. It takes chunks from the first one on, they from the
last one back: so a thread mostly reads what it has written itself a step before, which
is in its cache, and not in another one's. Workers run native code only and know nothing
of Python, so they need no lock of the interpreter.

`@fnx_run_short` is for work that would be done by the time a parked worker is there:
workers that are awake help, and parked ones are woken only if such a call was made just
before. They stay awake then, as long as the calls follow each other.

Why LLVM IR: it is the one language that fnx can compile on a user's machine. Why POSIX
threads: the same functions are in every Linux and macOS process. `threads.py`, next on
the walk, compiles the text once a process.

How it works. `job` is a number that is odd while a job may be joined (its upper half),
and how many workers have joined (its lower half): joining and closing are one atomic
operation each, so a worker that wakes too late finds the job closed and touches nothing
of it. A worker without work looks for some for a while, then parks in its
own slot, under its own lock; the caller opens the job first and looks for parked
workers afterwards, a worker says that it parks first and looks for a job afterwards, so
no wake-up is lost. Who finds the pool busy runs all rounds by itself. Ending the pool
is keeping it busy for ever.
"""

from __future__ import annotations

import platform
import time

from fnx.cpu.threads import MOST_THREADS

RUN, RUN_SHORT = RUNS = "fnx_run", "fnx_run_short"
"""What runs a part, with threads and with those that are awake."""

SPINS = 2000
"""How often a worker looks for another job before it parks: some fifty microseconds,
which waking it costs: steps of a loop that it does not share, or a call of Python."""

SOON = 50_000
"""Nanoseconds between short calls for which workers are woken at the second one: they
stay awake so long."""

PATIENCE = 2000
"""How often a caller looks whether the others are done before it parks: longer than any
usual chunk takes. On a busy machine a worker may be waiting for a processor, and gets
the caller's as soon as the caller parks."""

# Waiting in a loop, as the processor wants to be told.
_PAUSES = {
    "x86_64": "llvm.x86.sse2.pause()",
    "aarch64": "llvm.aarch64.hint(i32 1)",
    "arm64": "llvm.aarch64.hint(i32 1)",
}


def pool_text(set_mask: int) -> str:
    """The module; `set_mask` is the platform's `SIG_SETMASK`.

    Exports `fnx_run`, `fnx_run_short`, `fnx_stop`, `fnx_forget`, and the number
    `fnx_threads`.
    """
    pause = _PAUSES.get(platform.machine().lower())
    text = _TEXT.replace("SPINS", str(SPINS)).replace("SET_MASK", str(set_mask))
    text = text.replace("SLOTS", str(MOST_THREADS))
    text = text.replace("PATIENCE", str(PATIENCE)).replace("SOON", str(SOON))
    text = text.replace("CLOCK", str(getattr(time, "CLOCK_MONOTONIC", 0)))
    if pause is None:
        return text.replace("PAUSE", "; nothing to tell this processor")
    declaration = f"declare void @{pause.replace('i32 1', 'i32')}\n"
    return text.replace("PAUSE", f"call void @{pause}") + declaration


_TEXT = """
; A worker's slot: whether it is parked, its thread, a lock and a condition (at most 64
; bytes each on every platform). Words that threads contend for have a line each.
%slot = type { i32, i64, [64 x i8], [64 x i8], [48 x i8] }
@slots = internal global [SLOTS x %slot] zeroinitializer, align 64
@caller = internal global %slot zeroinitializer, align 64

@fnx_threads = global i32 1, align 64                  ; how many may share a loop
@started = internal global i32 0, align 4              ; workers
@ending = internal global i32 0, align 4               ; whether workers shall end
@busy = internal global i32 0, align 64                ; whether a caller has the pool
@job = internal global i64 0, align 64
@taken = internal global i64 0, align 64               ; chunks, first and last ones
@part = internal global ptr null, align 64
@context = internal global ptr null, align 8
@rounds = internal global i64 0, align 8
@chunk = internal global i64 0, align 8
@missed = internal global i64 0, align 8               ; when a short call ended alone
@every_signal = internal constant <16 x i64> splat (i64 -1)

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare i64 @llvm.umin.i64(i64, i64)

; Takes chunks until there are none: from the first on or, if that is what 2**32 is
; added for, from the last one back.
define internal void @take_chunks(i64 %one) {
entry:
  %part = load ptr, ptr @part
  %context = load ptr, ptr @context
  %rounds = load i64, ptr @rounds
  %chunk = load i64, ptr @chunk
  %more = add i64 %rounds, %chunk
  %most = sub i64 %more, 1
  %chunks = udiv i64 %most, %chunk
  %first = icmp eq i64 %one, 1
  br label %take
take:
  %taken = atomicrmw add ptr @taken, i64 %one monotonic
  %before = and i64 %taken, 4294967295
  %behind = lshr i64 %taken, 32
  %left = sub i64 %chunks, %behind
  %some = icmp slt i64 %before, %left
  br i1 %some, label %run, label %none
run:
  %last = sub i64 %left, 1
  %number = select i1 %first, i64 %before, i64 %last
  %begin = mul i64 %number, %chunk
  %after = add i64 %begin, %chunk
  %end = call i64 @llvm.umin.i64(i64 %after, i64 %rounds)
  call void %part(ptr %context, i64 %begin, i64 %end)
  br label %take
none:
  ret void
}

; Whether a job is open and has room for one more worker.
define internal i1 @may_join(i64 %job) {
  %bit = and i64 %job, 4294967296
  %open = icmp ne i64 %bit, 0
  %joined = and i64 %job, 4294967295
  %threads = load atomic i32, ptr @fnx_threads monotonic, align 4
  %wide = zext i32 %threads to i64
  %with_caller = add i64 %joined, 1
  %room = icmp ult i64 %with_caller, %wide
  %may = and i1 %open, %room
  ret i1 %may
}

; Whether a worker has something to do: a job to join, or to end.
define internal i1 @has_work() {
  %job = load atomic i64, ptr @job seq_cst, align 8
  %may = call i1 @may_join(i64 %job)
  %ending = load atomic i32, ptr @ending seq_cst, align 4
  %end = icmp ne i32 %ending, 0
  %any = or i1 %may, %end
  ret i1 %any
}

; Whether every worker has left the job.
define internal i1 @is_done() {
  %job = load atomic i64, ptr @job seq_cst, align 8
  %working = and i64 %job, 4294967295
  %none = icmp eq i64 %working, 0
  ret i1 %none
}

; Makes a slot ready to be parked in.
define internal void @prepare(ptr %slot) {
  %mutex = getelementptr %slot, ptr %slot, i32 0, i32 2
  %condition = getelementptr %slot, ptr %slot, i32 0, i32 3
  store i32 0, ptr %slot
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}

; Waits in a slot until it is woken, unless that has become needless.
define internal void @park(ptr %slot, ptr %needless) {
entry:
  %mutex = getelementptr %slot, ptr %slot, i32 0, i32 2
  %condition = getelementptr %slot, ptr %slot, i32 0, i32 3
  call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i32 1, ptr %slot seq_cst, align 4
  %already = call i1 %needless()
  br i1 %already, label %leave, label %look
look:
  %parked = load atomic i32, ptr %slot seq_cst, align 4
  %still = icmp ne i32 %parked, 0
  br i1 %still, label %wait, label %leave
wait:
  call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %look
leave:
  store atomic i32 0, ptr %slot seq_cst, align 4
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

; Wakes who is parked in a slot; gives whether anybody was.
define internal i1 @wake(ptr %slot) {
entry:
  %parked = load atomic i32, ptr %slot seq_cst, align 4
  %is = icmp ne i32 %parked, 0
  br i1 %is, label %wake, label %awake
wake:
  %mutex = getelementptr %slot, ptr %slot, i32 0, i32 2
  %condition = getelementptr %slot, ptr %slot, i32 0, i32 3
  call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i32 0, ptr %slot seq_cst, align 4
  call i32 @pthread_mutex_unlock(ptr %mutex)
  call i32 @pthread_cond_signal(ptr %condition)
  ret i1 true
awake:
  ret i1 false
}

define internal ptr @worker(ptr %slot) {
entry:
  br label %look
look:
  %spins = phi i32 [ SPINS, %entry ], [ SPINS, %close ], [ SPINS, %tell ],
                   [ SPINS, %park ], [ %spins, %join ], [ %fewer, %spin ]
  %ending = load atomic i32, ptr @ending seq_cst, align 4
  %end = icmp ne i32 %ending, 0
  br i1 %end, label %leave, label %try
try:
  %job = load atomic i64, ptr @job seq_cst, align 8
  %may = call i1 @may_join(i64 %job)
  br i1 %may, label %join, label %idle
join:
  %more = add i64 %job, 1
  %swap = cmpxchg ptr @job, i64 %job, i64 %more seq_cst seq_cst
  %joined = extractvalue { i64, i1 } %swap, 1
  br i1 %joined, label %work, label %look
work:
  call void @take_chunks(i64 4294967296)
  br label %close
close:
  %was = atomicrmw sub ptr @job, i64 1 seq_cst
  %state = and i64 %was, 8589934591
  %last = icmp eq i64 %state, 1
  br i1 %last, label %tell, label %look
tell:
  call i1 @wake(ptr @caller)
  br label %look
idle:
  %none = icmp eq i32 %spins, 0
  br i1 %none, label %park, label %spin
spin:
  PAUSE
  %fewer = sub i32 %spins, 1
  br label %look
park:
  call void @park(ptr %slot, ptr @has_work)
  br label %look
leave:
  ret ptr null
}

; Starts workers until there are enough; where the system refuses, with what there is.
define internal void @start(i32 %threads) {
entry:
  %before = alloca [16 x i64]
  %any = load i32, ptr @started
  %first = icmp eq i32 %any, 0
  br i1 %first, label %prepare, label %look
prepare:
  call void @prepare(ptr @caller)
  br label %look
look:
  %started = load i32, ptr @started
  %with_caller = add i32 %started, 1
  %few = icmp ult i32 %with_caller, %threads
  br i1 %few, label %create, label %enough
create:
  %slot = getelementptr [SLOTS x %slot], ptr @slots, i32 0, i32 %started
  %thread = getelementptr %slot, ptr %slot, i32 0, i32 1
  call void @prepare(ptr %slot)
  call i32 @pthread_sigmask(i32 SET_MASK, ptr @every_signal, ptr %before)
  %error = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %slot)
  call i32 @pthread_sigmask(i32 SET_MASK, ptr %before, ptr null)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %enough, label %created
created:
  store i32 %with_caller, ptr @started
  br label %look
enough:
  ret void
}

; Wakes parked workers, at most so many.
define internal void @wake_workers(i64 %most) {
entry:
  %started = load i32, ptr @started
  br label %look
look:
  %n = phi i32 [ 0, %entry ], [ %following, %wake ]
  %left = phi i64 [ %most, %entry ], [ %fewer, %wake ]
  %any = icmp ult i32 %n, %started
  %some = icmp ne i64 %left, 0
  %go = and i1 %any, %some
  br i1 %go, label %wake, label %enough
wake:
  %slot = getelementptr [SLOTS x %slot], ptr @slots, i32 0, i32 %n
  %woken = call i1 @wake(ptr %slot)
  %one = zext i1 %woken to i64
  %fewer = sub i64 %left, %one
  %following = add i32 %n, 1
  br label %look
enough:
  ret void
}

; Whether at least so many workers are awake.
define internal i1 @are_awake(i64 %least) {
entry:
  %started = load i32, ptr @started
  br label %look
look:
  %n = phi i32 [ 0, %entry ], [ %following, %count ]
  %awake = phi i64 [ 0, %entry ], [ %more, %count ]
  %enough = icmp uge i64 %awake, %least
  %any = icmp ult i32 %n, %started
  %stop = xor i1 %any, true
  %done = or i1 %enough, %stop
  br i1 %done, label %leave, label %count
count:
  %slot = getelementptr [SLOTS x %slot], ptr @slots, i32 0, i32 %n
  %parked = load atomic i32, ptr %slot seq_cst, align 4
  %is = icmp eq i32 %parked, 0
  %one = zext i1 %is to i64
  %more = add i64 %awake, %one
  %following = add i32 %n, 1
  br label %look
leave:
  ret i1 %enough
}

; The time in nanoseconds.
define internal i64 @now() {
  %time = alloca [2 x i64]
  call i32 @clock_gettime(i32 CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  ret i64 %now
}

; Whether a short call that had too little help has just ended.
define internal i1 @missed_again() {
  %now = call i64 @now()
  %before = load i64, ptr @missed
  %since = sub i64 %now, %before
  %soon = icmp ult i64 %since, SOON
  ret i1 %soon
}

; Runs every round of a part.
define void @fnx_run(ptr %part, ptr %context, i64 %rounds, i64 %chunk) {
  call void @run(ptr %part, ptr %context, i64 %rounds, i64 %chunk, i1 false)
  ret void
}

; The same, of work that parked workers would come too late for.
define void @fnx_run_short(ptr %part, ptr %context, i64 %rounds, i64 %chunk) {
  call void @run(ptr %part, ptr %context, i64 %rounds, i64 %chunk, i1 true)
  ret void
}

define internal void @run(
    ptr %part, ptr %context, i64 %rounds, i64 %chunk, i1 %short) {
entry:
  %threads = load atomic i32, ptr @fnx_threads monotonic, align 4
  %several = icmp ugt i32 %threads, 1
  %divided = icmp ult i64 %chunk, %rounds
  %shared = and i1 %several, %divided
  br i1 %shared, label %ask, label %alone
ask:
  %asked = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %asked, 1
  br i1 %mine, label %open, label %alone
alone:
  call void %part(ptr %context, i64 0, i64 %rounds)
  ret void
open:
  store ptr %part, ptr @part
  store ptr %context, ptr @context
  store i64 %rounds, ptr @rounds
  store i64 %chunk, ptr @chunk
  store i64 0, ptr @taken
  %opened = atomicrmw add ptr @job, i64 4294967296 seq_cst
  %last = sub i64 %rounds, 1
  %others = udiv i64 %last, %chunk
  %most = sub i32 %threads, 1
  %wide = zext i32 %most to i64
  %helpers = call i64 @llvm.umin.i64(i64 %others, i64 %wide)
  br i1 %short, label %look, label %wake
look:
  %awake = call i1 @are_awake(i64 %helpers)
  br i1 %awake, label %work, label %miss
miss:
  %again = call i1 @missed_again()
  br i1 %again, label %wake, label %work
wake:
  call void @start(i32 %threads)
  call void @wake_workers(i64 %helpers)
  br label %work
work:
  %missed = phi i1 [ false, %look ], [ true, %miss ], [ %short, %wake ]
  call void @take_chunks(i64 1)
  %closed = atomicrmw add ptr @job, i64 4294967296 seq_cst
  br label %wait
wait:
  %spins = phi i32 [ PATIENCE, %work ], [ %fewer, %spin ], [ PATIENCE, %sleep ]
  %is_done = call i1 @is_done()
  br i1 %is_done, label %done, label %patience
patience:
  %none = icmp eq i32 %spins, 0
  br i1 %none, label %sleep, label %spin
spin:
  PAUSE
  %fewer = sub i32 %spins, 1
  br label %wait
sleep:
  call void @park(ptr @caller, ptr @is_done)
  br label %wait
done:
  br i1 %missed, label %note, label %leave
note:
  %now = call i64 @now()
  store i64 %now, ptr @missed
  br label %leave
leave:
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}

; Ends all workers; from now on the pool is busy.
define void @fnx_stop() {
entry:
  br label %ask
ask:
  %asked = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %asked, 1
  br i1 %mine, label %end, label %yield
yield:
  call i32 @sched_yield()
  br label %ask
end:
  store atomic i32 1, ptr @ending seq_cst, align 4
  call void @wake_workers(i64 SLOTS)
  %started = load i32, ptr @started
  br label %look
look:
  %n = phi i32 [ 0, %end ], [ %following, %join ]
  %any = icmp ult i32 %n, %started
  br i1 %any, label %join, label %done
join:
  %thread = getelementptr [SLOTS x %slot], ptr @slots, i32 0, i32 %n, i32 1
  %id = load i64, ptr %thread
  call i32 @pthread_join(i64 %id, ptr null)
  %following = add i32 %n, 1
  br label %look
done:
  ret void
}

; Makes the pool new in a forked process, which has none of its workers.
define void @fnx_forget() {
  store i64 0, ptr @missed
  store i32 0, ptr @started
  store i32 0, ptr @ending
  store i32 0, ptr @busy
  store i64 0, ptr @job
  ret void
}
"""
