// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package serial

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// do runs f with the mutex held.
func do(r *Runtime, f func()) {
	r.Lock()
	defer r.Unlock()
	f()
}

// TestCalls checks that queued calls run in order, one at a time, without the mutex, and that a
// call may queue another.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		var got []int
		do(r, func() {
			r.Call(func() {
				do(r, func() { r.Call(func() { got = append(got, 3) }) })
				time.Sleep(time.Second)
				got = append(got, 1)
			})
			r.Call(func() { got = append(got, 2) })
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		do(r, func() {
			if !slices.Equal(got, []int{1, 2, 3}) || !r.Idle() {
				t.Errorf("calls ran in order %v; idle: %v", got, r.Idle())
			}
		})
	})
}

// TestCallThen checks that functions keep their order behind one that waits for a call, and that
// Close skips the waiting ones.
func TestCallThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		var got []int
		add := func(n int) func() { return func() { got = append(got, n) } }
		do(r, func() {
			r.CallThen(nil, add(0))
			r.CallThen(func() { time.Sleep(time.Second) }, add(1))
			r.CallThen(nil, add(2))
			if !slices.Equal(got, []int{0}) || !r.Waiting() {
				t.Errorf("%v ran at once; waiting: %v", got, r.Waiting())
			}
		})
		time.Sleep(2 * time.Second)
		do(r, func() {
			if !slices.Equal(got, []int{0, 1, 2}) || r.Waiting() {
				t.Errorf("%v ran; waiting: %v", got, r.Waiting())
			}
			r.CallThen(func() {}, add(3))
			r.Close()
			r.CallThen(nil, add(4))
		})
		synctest.Wait()
		if len(got) != 3 {
			t.Errorf("after Close %v ran", got[3:])
		}
	})
}

// TestAfter checks that a timer runs unless it was stopped or replaced, or the Runtime is closed,
// and that it empties its slot.
func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New()
		var slot, stopped, late *time.Timer
		got := 0
		do(r, func() {
			r.After(time.Second, &slot, func() { t.Error("a timer that was replaced ran") })
			r.After(2*time.Second, &slot, func() { got++ })
			r.After(time.Second, &stopped, func() { t.Error("a timer that was stopped ran") })
			Halt(&stopped)
			r.After(4*time.Second, &late, func() { t.Error("a timer ran after Close") })
		})
		time.Sleep(3 * time.Second)
		do(r, func() {
			if got != 1 || slot != nil {
				t.Errorf("the timer ran %d times, want once; its slot is empty: %v", got, slot == nil)
			}
			r.Close()
		})
		time.Sleep(2 * time.Second)
	})
}
