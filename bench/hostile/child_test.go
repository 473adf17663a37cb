// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/xdslb/xdslb/bench/kit"
)

// child is a server in a process of its own.
type child struct {
	addr string
	in   io.Writer
	out  *bufio.Reader
}

// start starts a server, whose sizes are divided by a number. It ends with the test.
func start(t *testing.T, s *scenario, divisor int) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverVariable+"="+s.name, fmt.Sprintf("%s=%d", divisorVariable, divisor))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	kit.Must(t, err)
	out, err := cmd.StdoutPipe()
	kit.Must(t, err)
	kit.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()         // it ends when its input does
		_ = cmd.Process.Kill() // it may be busy
		_ = cmd.Wait()
	})
	c := &child{in: in, out: bufio.NewReader(out)}
	line, err := c.out.ReadString('\n')
	kit.Must(t, err)
	c.addr = strings.TrimSpace(line)
	return c
}

// served has the counts of a server.
type served struct{ requests, answers, nacks, responses, bytes, largest int64 }

// do has the server obey a command, and returns its counts.
func (c *child) do(t *testing.T, command string) (s served) {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, command); err != nil {
		t.Fatal(err)
	}
	line, err := c.out.ReadString('\n')
	kit.Must(t, err)
	if _, err := fmt.Sscan(line, &s.requests, &s.answers, &s.nacks, &s.responses, &s.bytes, &s.largest); err != nil {
		t.Fatal(err)
	}
	return s
}
