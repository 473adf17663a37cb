// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/xdslb/xdslb/bench/record"
)

// defaultBase returns the commit where HEAD left the main branch, or the commit before HEAD if
// it did not.
func defaultBase(ctx context.Context) (string, error) {
	head, err := output(ctx, "", "git", "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	base, err := output(ctx, "", "git", "merge-base", "HEAD", "origin/main")
	if err != nil || base == head {
		dirty, err := output(ctx, "", "git", "status", "--porcelain", "--untracked-files=no")
		if err != nil || dirty != "" {
			return head, err
		}
		return output(ctx, "", "git", "rev-parse", "HEAD~1")
	}
	return base, nil
}

// recordedBase returns the commit of a recorded run. If the repository does not have it, as in a
// shallow clone, missing describes that.
func recordedBase(ctx context.Context, file string) (base, missing string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", "", err
	}
	rec, err := record.Read(bytes.NewReader(text))
	if err != nil {
		return "", "", err
	}
	base = strings.TrimSuffix(rec.Get("commit"), "-dirty")
	if base == "" {
		return "", "", fmt.Errorf("%s names no commit", file)
	}
	if i := strings.LastIndex(base, "-g"); i >= 0 { // as git describe writes it after a tag
		base = base[i+2:]
	}
	if _, err := output(ctx, "", "git", "rev-parse", "--verify", "--quiet", "--end-of-options", base+"^{commit}"); err != nil {
		return "", fmt.Sprintf("this directory is not a clone with commit %s, at which %s was recorded: a shallow clone or an archive has no history", base, file), ctx.Err()
	}
	return base, "", nil
}

// sameCode reports whether the working tree has the same Go files as a commit.
func sameCode(ctx context.Context, commit string) (bool, error) {
	differing, err := output(ctx, "", "git", "diff", "--name-only", commit, "--", ":/*.go", ":/go.mod", ":/go.sum")
	if err != nil || differing != "" {
		return false, err
	}
	added, err := output(ctx, "", "git", "ls-files", "--others", "--exclude-standard", "--", ":/*.go")
	return added == "", err
}

// extract writes the files of a commit to a new directory. Unlike a work tree, it leaves nothing in the
// repository if the process is killed.
func extract(ctx context.Context, commit, dir string) error {
	root, err := output(ctx, "", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	file := dir + ".tar"
	if _, err := output(ctx, root, "git", "archive", "--format=tar", "-o", file, commit); err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	return errors.Join(untar(f, dir), f.Close(), os.Remove(file))
}

// untar writes the regular files of an archive to a new directory.
func untar(r io.Reader, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	to, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case h.Typeflag != tar.TypeReg:
			continue
		}
		text, err := io.ReadAll(in)
		if err == nil {
			err = to.MkdirAll(filepath.Dir(h.Name), 0o755)
		}
		if err == nil {
			err = to.WriteFile(h.Name, text, h.FileInfo().Mode().Perm())
		}
		if err != nil {
			return err
		}
	}
}
