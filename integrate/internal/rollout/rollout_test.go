// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/xdslb/xdslb/bench/kit"
	"github.com/xdslb/xdslb/integrate/report"
)

// onHost gives the host a name for a test.
func onHost(t *testing.T, name string) {
	t.Helper()
	before := hostname
	t.Cleanup(func() { hostname = before })
	hostname = func() (string, error) {
		if name == "" {
			return "", errors.New("no name")
		}
		return name, nil
	}
}

// TestVerdict: which targets the variables take away from us.
func TestVerdict(t *testing.T) {
	onHost(t, "pod-1")
	const svc = "xds:///svc.ns:80"
	for _, tt := range []struct {
		disable, enable, target string
		ours                    bool
	}{
		{"", "", svc, true},
		{" , ", "", svc, true},
		{"", " , ", svc, true},
		{"all", "", svc, false},
		{"*", "", "xds://authority/a/b", false},
		{"TRUE", "", svc, false},
		{"1", "", svc, false},
		{"none,false,0", "", svc, true},
		{"svc.ns:80", "", svc, false},
		{"svc.ns", "", svc, true},
		{"svc.*", "", svc, false},
		{"x, *.ns:80 ", "", svc, false},
		{"xds:///svc.*", "", svc, false},
		{"xdslb:///svc.*", "", svc, true},
		{"xds://*/svc.ns:80", "", "xds://authority/svc.ns:80", false},
		{"a/*", "", "xds:///a/b", false},
		{"a*", "", "xds:///a/b", true},
		{"[", "", svc, false},
		{"[a", "svc*", svc, false},
		{"", "none", svc, false},
		{"", "all", svc, true},
		{"", "svc.*,x", svc, true},
		{"", "x", svc, false},
		{"", "x,[", svc, false},
		{"", "svc*,[", svc, true},
		{"svc*", "svc*", svc, false},
		{"x", "svc*", svc, true},
		{"yes", "", svc, false},
		{"ON", "", svc, false},
		{"off", "", svc, false},
		{"10", "", svc, false},
		{"svc*,yes", "", "xds:///other", false},
		{"", "yes", svc, false},
		{"", "yes,svc*", svc, true},
		// The host is at 5.87 %: see TestPosition.
		{"", "5.8%", svc, false},
		{"", "5.9%", svc, true},
		{"", "0%", svc, false},
		{"", "100%", svc, true},
		{"", "101%", svc, false},
		{"", "svc*:6%", svc, true},
		{"", "svc*:6%", "xds:///other", false},
		{"", "svc.ns:80:5%", svc, false},
		{"", "xds:///svc*:5%, svc*:6%", svc, true},
		{"94%", "", svc, true},
		{"95%", "", svc, false},
		{"95%", "100%", svc, false},
		{"svc.ns:80:95%", "", svc, false},
		{"svc*:0%", "", svc, true},
		{":50%", "", svc, false},
	} {
		t.Setenv(Disable, tt.disable)
		t.Setenv(Enable, tt.enable)
		u, err := url.Parse(tt.target)
		kit.Must(t, err)
		if v := verdictOf(resolver.Target{URL: *u}); (v == nil) != tt.ours {
			t.Errorf("disable %q, enable %q, target %s: %+v, want it ours: %v", tt.disable, tt.enable, tt.target, v, tt.ours)
		}
	}
}

// TestVerdictSays: a verdict names the variable, its value and the pattern that decided, and
// the way back is one.
func TestVerdictSays(t *testing.T) {
	u, err := url.Parse("xds:///svc.ns:80")
	kit.Must(t, err)
	for _, tt := range []struct {
		disable, enable string
		want            report.RolloutStatus
		why             string
	}{
		{"x, svc.*", "", report.RolloutStatus{Variable: Disable, Value: "x, svc.*", Pattern: "svc.*", Malformed: false, Forward: "take the pattern out of XDSLB_DISABLE, and restart the program"}, `XDSLB_DISABLE has "svc.*"`},
		{"[,x", "", report.RolloutStatus{Variable: Disable, Value: "[,x", Pattern: "[", Malformed: true, Forward: "fix or remove the pattern in XDSLB_DISABLE, and restart the program"}, `XDSLB_DISABLE has the malformed pattern "["`},
		{"[,svc*", "", report.RolloutStatus{Variable: Disable, Value: "[,svc*", Pattern: "svc*", Malformed: false, Forward: "take the pattern out of XDSLB_DISABLE, and restart the program"}, `XDSLB_DISABLE has "svc*"`},
		{"", "x", report.RolloutStatus{Variable: Enable, Value: "x", Pattern: "", Malformed: false, Forward: `add a pattern that matches "svc.ns:80" to XDSLB_ENABLE, or unset it, and restart the program`}, `no pattern of XDSLB_ENABLE="x" matches`},
		{"", "[", report.RolloutStatus{Variable: Enable, Value: "[", Pattern: "[", Malformed: true, Forward: "fix the pattern in XDSLB_ENABLE, and restart the program"}, `XDSLB_ENABLE has the malformed pattern "["`},
	} {
		t.Setenv(Disable, tt.disable)
		t.Setenv(Enable, tt.enable)
		if v := verdictOf(resolver.Target{URL: *u}); v == nil || *v != tt.want || v.Why() != tt.why {
			t.Errorf("disable %q, enable %q: %+v, want %+v since %s", tt.disable, tt.enable, v, tt.want, tt.why)
		}
	}
}

// TestPosition: the position of a host is the SHA-256 of its name as a fraction, as computed by
// printf pod-1 | sha256sum. More hosts are selected by a higher percentage, never fewer or others, and
// XDSLB_DISABLE takes away the hosts that XDSLB_ENABLE adds last.
func TestPosition(t *testing.T) {
	for name, want := range map[string]string{"pod-1": "5.87", "": "100.00"} {
		onHost(t, name)
		if _, at := position(); fmt.Sprintf("%.2f", at) != want {
			t.Errorf("host %q is at %.2f, want %s", name, at, want)
		}
	}
	const hosts = 1000
	var before [hosts]bool
	for percent := 0; percent <= 100; percent += 5 {
		n := 0
		for h := range hosts {
			hostname = func() (string, error) { return fmt.Sprintf("orders-7f9c-%d", h), nil }
			in := (&patterns{variable: Enable}).includes(float64(percent))
			if out := (&patterns{variable: Disable}).includes(float64(100 - percent)); out == in {
				t.Errorf("host %d: in by %d%%: %v, out by %d%%: %v", h, percent, in, 100-percent, out)
			}
			if before[h] && !in {
				t.Errorf("host %d is out again at %d%%", h, percent)
			}
			if before[h] = in; in {
				n++
			}
		}
		if share := n * 100 / hosts; share < percent-4 || share > percent+4 {
			t.Errorf("%d%% selects %d of %d hosts", percent, n, hosts)
		}
	}
}

// TestPercentageSays: for a host outside of the percentage, the reason has the position of the host and the
// percentage, also in the log, and the remedy names the percentage to exceed.
func TestPercentageSays(t *testing.T) {
	u, err := url.Parse("xds:///svc")
	kit.Must(t, err)
	target := resolver.Target{URL: *u}
	t.Setenv(Disable, "")
	for _, tt := range []struct{ enable, host, why, forward string }{
		{"svc:5%", "pod-1", `host "pod-1" is at 5.87 %, outside of "svc:5%" in XDSLB_ENABLE`,
			`raise the percentage of "svc:5%" in XDSLB_ENABLE above 5.87, the position of host "pod-1", or unset it, and restart the program`},
		{"other,0%", "pod-1", `host "pod-1" is at 5.87 %, outside of "0%" in XDSLB_ENABLE`,
			`raise the percentage of "0%" in XDSLB_ENABLE above 5.87, the position of host "pod-1", or unset it, and restart the program`},
		{"99%", "", `host "" is at 100.00 %, outside of "99%" in XDSLB_ENABLE`,
			`raise the percentage of "99%" in XDSLB_ENABLE above 100.00, the position of host "", or unset it, and restart the program`},
	} {
		onHost(t, tt.host)
		t.Setenv(Enable, tt.enable)
		notedLines.Clear()
		log := &kit.Logs{}
		v := Verdict(target, slog.New(log))
		if v == nil || v.Why() != tt.why || v.Forward != tt.forward {
			t.Fatalf("verdict %+v, want the reason %s and the remedy %s", v, tt.why, tt.forward)
		}
		NoteOutcome(target, v, false, nil, slog.New(log))
		log.WantOne(t, "WARN xdslb: channels of a target handed to", "reason="+tt.why+" ")
	}
}

// TestProblems: values that are not understood, and patterns of XDSLB_DISABLE that match no target, are
// problems that name the accepted forms. They are logged, the latter after a minute.
func TestProblems(t *testing.T) {
	for _, tt := range []struct {
		variable, value string
		want            string // in the problem and in the line; empty for none
		later           bool   // the line
	}{
		{Disable, "yes", `XDSLB_DISABLE has the malformed pattern "yes"`, false},
		{Disable, "On", `XDSLB_DISABLE has the malformed pattern "On"`, false},
		{Disable, "svc*, 50", `XDSLB_DISABLE has the malformed pattern "50"`, false},
		{Disable, "gree*er-typo", `XDSLB_DISABLE="gree*er-typo" matches no target that the process has used so far`, true},
		{Disable, "gree*er-typo:10%", `XDSLB_DISABLE="gree*er-typo:10%" matches no target that the process has used so far`, true},
		{Disable, "gree*er-typo,svc:0%", "", false},
		{Disable, "svc", "", false},
		{Disable, "none", "", false},
		{Disable, "all", "", false},
		{Disable, "10%", "", false},
		{Enable, "true,", "", false},
		{Enable, "disabled", `XDSLB_ENABLE has the malformed pattern "disabled"`, false},
		{Enable, "gree*er-typo", "", false}, // the channel uses stock, and its verdict shows why
		{IgnoreWeights, "yes", `XDSLB_IGNORE_ENDPOINT_WEIGHTS="yes" is not understood and has no effect: use 1, true, 0 or false`, false},
		{IgnoreWeights, "1", "", false},
		{IgnoreWeights, "false", "", false},
	} {
		t.Run(tt.variable+"="+tt.value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, v := range []string{Disable, Enable, IgnoreWeights} {
					t.Setenv(v, "")
				}
				t.Setenv(tt.variable, tt.value)
				u, err := url.Parse("xds:///svc")
				kit.Must(t, err)
				log := &kit.Logs{}
				for range 2 {
					Verdict(resolver.Target{URL: *u}, slog.New(log))
					if ignores := IgnoresWeights(slog.New(log)); ignores != (tt.variable == IgnoreWeights && tt.value == "1") {
						t.Errorf("endpoint weights are ignored: %v", ignores)
					}
				}
				problems := strings.Join(Problems(), "\n")
				if tt.want == "" && problems != "" || !strings.Contains(problems, tt.want) ||
					tt.want != "" && tt.variable != IgnoreWeights && !strings.Contains(problems, "all, none, a percentage") {
					t.Errorf("problems %q, want %q", problems, tt.want)
				}
				lines := 0
				if tt.want != "" {
					lines = 1
				}
				at := lines
				if tt.later {
					at = 0
				}
				quoted := strings.ReplaceAll(tt.want, `"`, "")
				count := func() int {
					n := 0
					for _, line := range log.With("ERROR xdslb: environment variable") {
						if strings.Contains(strings.NewReplacer(`"`, "", `\`, "").Replace(line), quoted) {
							n++
						}
					}
					return n
				}
				if n := count(); n != at {
					t.Errorf("%d lines at once, want %d: %s", n, at, log)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if n := count(); n != lines || len(log.With("ERROR")) != lines {
					t.Errorf("%d lines after two minutes, want %d: %s", n, lines, log)
				}
			})
		})
	}
}
