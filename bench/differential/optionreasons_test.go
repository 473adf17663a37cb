// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// An optionDifference is something that the sides of an option case do not have in
// common.
type optionDifference struct {
	c              *optionCase
	variant, place string
	notes          [2]rpcNotes // of stock and ours, about the same RPC
}

func (d *optionDifference) String() string {
	return fmt.Sprintf("%s\nstock:\n  %s\nours:\n  %s", d.notes[0].rpc, strings.Join(d.notes[0].lines, "\n  "), strings.Join(d.notes[1].lines, "\n  "))
}

// optionReasons are all differences that are accepted, each with where it is documented.
var optionReasons = []struct {
	text   string
	covers func(d *optionDifference) bool
}{
	{
		"interceptors behind ours are called for each attempt, within the route's timeout, and not for RPCs that a filter ends (DialOptions); in stock once for each RPC",
		func(d *optionDifference) bool {
			return d.place == "behind" && d.c.interceptors != nil && (d.byUs() || slices.Contains([]string{"timeout", "abort"}, d.variant))
		},
	},
	{
		"a stream that uses up its attempts while it sends ends with their status and says how many there were (StreamInterceptor); in stock it ends with UNKNOWN",
		func(d *optionDifference) bool {
			return d.byUs() && strings.HasSuffix(d.notes[1].rpc, `script "14"`) && strings.HasPrefix(d.notes[1].rpc, "stream") && d.attempts(0) == d.attempts(1) &&
				d.c.name == "RetrySentBefore"
		},
	},
	{
		"OnFinish is called when SendMsg finds out that a stream has failed for good (StreamInterceptor), in stock by the next operation",
		func(d *optionDifference) bool {
			return d.byUs() && slices.Contains([]string{"StreamOrders", "RetrySentBefore"}, d.c.name) && slices.Equal(withoutFinish(d.notes[0].lines), withoutFinish(d.notes[1].lines))
		},
	},
	{
		"grpc.WithDisableRetry is not visible to interceptors (DialOptions)",
		func(d *optionDifference) bool {
			return d.c.name == "DisableRetry" && d.byUs() && d.attempts(0) == 1 && d.attempts(1) > 1
		},
	},
	{
		"grpc.WithMaxCallAttempts is obeyed (UnaryInterceptor); stock ignores it for policies from xDS",
		func(d *optionDifference) bool {
			return d.c.name == "MaxCallAttempts" && d.attempts(0) == 3 && d.attempts(1) == 2
		},
	},
}

// withoutFinish returns the notes of a stream without the notes of OnFinish.
func withoutFinish(lines []string) []string {
	lines = slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return strings.HasPrefix(s, "finished: ") })
	for i, line := range lines {
		lines[i] = regexp.MustCompile(`"finished: \w+" ?`).ReplaceAllString(line, "")
		lines[i] = strings.ReplaceAll(lines[i], `" ]`, `"]`)
	}
	return lines
}

// byUs reports whether our interceptors make the RPC's retries.
func (d *optionDifference) byUs() bool {
	return slices.Contains([]string{"retry", "retry by budget", "hedge"}, d.variant)
}

// accepted reports whether there is a reason for the difference.
func (d *optionDifference) accepted() bool {
	for _, r := range optionReasons {
		if r.covers(d) {
			return true
		}
	}
	return false
}

// attempts returns the number of attempts of one side's RPC; 0 if it was not recorded.
func (d *optionDifference) attempts(side int) (n int) {
	for _, line := range d.notes[side].lines {
		if _, rest, ok := strings.Cut(line, " after "); ok {
			_, _ = fmt.Sscanf(rest, "%d attempts", &n)
		}
	}
	return n
}
