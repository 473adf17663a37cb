// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package edf provides weighted earliest-deadline-first scheduling: it maps weights to a
// sequence of indexes.
//
// # Order
//
// Endpoint i with weight w is due at 1/w, 2/w, 3/w and so on. A pick takes the endpoint that is
// due first, and the one with the lowest index in case of a tie. This is the order of the gRFC
// on endpoint weights from EDS (A34, requirements EDF-4 to EDF-9) in exact arithmetic.
// Implementations that add up 1/w in floating point swap picks where rounding breaks a tie
// (T-EDF-1). Equal weights result in round robin (EDF-13). Weight zero is never picked.
//
// The sequence repeats after sum/gcd picks, its period. In each period endpoint i has exactly
// w/gcd picks, and after any number of picks it is less than one pick behind its share (EDF-2).
// It may be ahead by more: a weight of 1000 beside a thousand of 1 is due a thousand times
// before any other is due once, and so has a thousand picks in a row (T-EDF-3). The maximum
// deviation of picks from their share over one period, and the longest run of one endpoint
// (TestFairness):
//
//	10 of 1 to 10                1.23 picks, run 1
//	100 of 1 to 1000             1.73 picks, run 1
//	one of 1000, 1000 of 1       500 picks, run 1000
//
// The order begins with the heaviest endpoint. So clients that receive the same weights at the
// same time and start at the beginning all start with the same endpoint, and if weights change
// often, light endpoints may never be picked (T-EDF-2). Hence Config.Start: with a random word,
// the probability of each endpoint to be the first pick is its share. The caller draws that
// word, or starts at zero. When weights change, Schedule.Reweigh keeps the place.
//
// # Queue
//
// Deadlines are fixed-point numbers with 62 bits for a period. That is exact: two deadlines i/a
// and k/b differ by at least 1/ab or not at all, and no two weights with a sum below 2^32 have
// a product above 2^62. All but extreme weights leave enough bits for the index at the low end
// of the same word, so a single comparison of 64 bits orders by deadline and index (packs in
// class.go; wide.go handles the other weights). There is no drift: the remainder of 1/w is
// carried, and keys are moved back by two periods from time to time.
//
// The queue is a tournament tree: after a pick, the path from its leaf to the root is replayed.
// Each step is one min and one max, without a branch to mispredict. A binary heap compares
// twice and branches. Endpoints of one weight share a leaf and take turns, so the size of the
// tree is the number of distinct weights, which in practice is small. No endpoint falls a whole
// pick behind: after m picks each has had at least the whole part of m*w/sum. So seek sets
// these counts, and makes the remaining picks, which are fewer than there are endpoints.
//
// # Schedule
//
// Many goroutines cannot share a queue without a lock, but they can share a table:
//
//	ticket --(+offset)--> position --(mod period)--> [ 2 1 2 2 0 1 2 ] --> index
//
// Equal weights above zero need no table: position modulo n is the index. Otherwise the table
// is the whole period if that is not too long (see Schedule), or a window that slides along the
// sequence (buffer). The picks themselves fill it from a queue, 64 at a time, and grow it, so
// making a Schedule costs a queue and 256 picks. A complete period is only read, and its queue
// is freed except for the weights. A pick that finds its part of the window unfilled, because a
// goroutine was stopped while it filled it, takes another part instead; Schedule.fallbacks
// counts them.
//
// Successive Schedules that differ in few weights share their common parts (layout): a change
// of one weight out of thousands takes a few microseconds and KiB (BenchmarkReweigh).
//
// At takes a ticket from a counter of the caller, so a caller that counts picks for other
// reasons does not pay for a second counter. A counter that several cores increment in a tight
// loop costs several times as much as on one core, because its cache line has to move, and then
// dominates the cost of a pick (BenchmarkNextParallel; impl=baseline is the counter alone).
// Callers that draw so fast can take tickets in batches (impl=batches), which keeps the order
// except for the picks in progress.
//
// # Rejected designs
//
// Batches of tickets inside a Schedule, one for each P: finding the P takes sync.Pool, runtime
// linkname or unsafe. With sync.Pool a pick took 18 ns alone instead of 3, and 20 instead of 40
// with two goroutines in a tight loop. A caller that has its own place for a batch avoids this.
//
// A binary heap behind a lock: 2 to 26 times slower than a queue (BenchmarkNext,
// impl=mutexheap), and more under contention. The static stride scheduler of A58: its order
// differs, and it steps over light endpoints one by one, up to 500 steps a pick for one weight
// of 1000 among 1s (impl=stride).
//
// Rounding weights to make periods short: an exact window costs 7 to 14 ns more than a table,
// and the control plane's weights are used unchanged.
//
// A window that grows with the number of endpoints: a window bridges time, which does not
// depend on that number. Filling 4 slots for each of 100000 endpoints took 14 ms more, and
// picks were not faster.
//
// A phase for each endpoint, which distributes the picks of a heavy endpoint among the picks of
// light endpoints: the order would no longer be the specified one.
//
// # Cost
//
// Measured on two cores of a 2.4 GHz EPYC, in ns for a pick by one goroutine, with weights from
// 1 to 1000 and, in brackets, with one of 1000 among 1s (BenchmarkNext):
//
//	endpoints                  10            1000          100000
//	queue                     9.8  (7.8)     13  (7.7)     22  (7.9)
//	Schedule                  3.3  (3.4)    3.8  (3.3)     25  (3.5)
//	Schedule, by window        13   (12)     19   (12)     27   (13)
//	mutex, container/heap      43   (17)    140   (75)    284  (177)
//	static stride               5   (28)     25 (1343)     25 (1993)
//	a counter, nothing else   2.4  (2.4)    2.5  (2.4)    2.4  (2.4)
//
// These hold for Schedules that are drawn from for long: a period of 1000 endpoints is complete
// after half a million picks. A Schedule that is replaced earlier, as those of client-side WRR,
// costs for a pick, including its share of making the Schedule (EDFLife in bench, on a machine
// with other load):
//
//	picks in its life        1000      10000     100000
//	10 endpoints               70         12        3.6
//	1000 endpoints            212         50         36
//
// With two goroutines that do nothing but draw, a pick costs each of them about twice as much
// from a window, and from a table as much as their counter: 40 ns, or 5 with batches of
// tickets.
//
// After construction only the table of a Schedule allocates, as it grows.
//
// Ids such as EDF-3 and T-EDF-1 are explained in integrate/docs/requirements.tsv.
package edf
