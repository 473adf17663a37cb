// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xdslb/xdslb/xds/internal/files"
)

// certs are the contents of the files of a CertFiles.
type certs struct {
	// Roots are the certificates for verifying the server.
	Roots Roots
	// Identity is the client's certificate and key, or nil.
	Identity *tls.Certificate
}

// Roots are the certificates for verifying servers: per trust domain if TrustDomains is not nil
// (A87), otherwise Pool, otherwise the system's.
type Roots struct {
	Pool         *x509.CertPool
	TrustDomains map[string]*x509.CertPool
}

// A CertLoader reads the files of a CertFiles. It reads them again when they are requested and
// its copy is older than RefreshInterval.
//
// No goroutine watches files, unlike in grpc's file_watcher: certificates are needed at
// handshakes only, which are rare, so an idle client has no cost and there is nothing to close.
// It is safe for concurrent use.
//
// Roots and identity are read independently: a certificate without its key does not prevent the
// use of new roots. A certificate and its key belong together: if they do not match, they are
// assumed to be in the process of replacement.
type CertLoader struct {
	files    CertFiles
	roots    loaded[Roots]
	identity loaded[*tls.Certificate]
	logger   atomic.Pointer[slog.Logger] // nil means slog.Default()
}

// NewCertLoader returns a loader that has not read any files yet.
func NewCertLoader(files CertFiles) *CertLoader { return &CertLoader{files: files} }

// Files returns the names of the files.
func (l *CertLoader) Files() CertFiles { return l.files }

// LogTo sets the Logger: the first that is not nil, otherwise slog.Default(). Lines are written
// by a separate goroutine.
func (l *CertLoader) LogTo(logger *slog.Logger) { l.logger.CompareAndSwap(nil, logger) }

// warn logs that the previous contents remain in use or, if err is nil, that the files were read
// again.
func (l *CertLoader) warn(read time.Time, err error) {
	logger := l.logger.Load()
	if logger == nil {
		logger = slog.Default()
	}
	if err == nil {
		go logger.Info("xdslb: TLS files can be read again", "roots", cmp.Or(l.files.SPIFFEBundleMapFile, l.files.CACertificateFile), "certificate", l.files.CertificateFile)
		return
	}
	go logger.Warn("xdslb: reading TLS files failed, keeping the previous contents", "read", read, "error", err)
}

// load returns the current certificates. If the files cannot be read, or are being replaced, it
// returns the previous certificates and tries again at the next call. It fails only if there
// are no previous ones. It returns when ctx ends, even if reading a file takes longer, and
// after two seconds if there are previous certificates. The result is shared, and must not be
// modified.
func (l *CertLoader) load(ctx context.Context) (*certs, error) {
	roots, err := l.LoadRoots(ctx)
	if err != nil {
		return nil, err
	}
	identity, err := l.LoadIdentity(ctx)
	if err != nil {
		return nil, err
	}
	return &certs{roots, identity}, nil
}

// LoadRoots is load for the roots only.
func (l *CertLoader) LoadRoots(ctx context.Context) (Roots, error) {
	return l.roots.get(ctx, cmp.Or(l.files.SPIFFEBundleMapFile, l.files.CACertificateFile), l.files.RefreshInterval, l.files.readRoots, func(Roots) bool { return true }, l.warn)
}

// LoadIdentity is load for the client's certificate and key only. An expired certificate is
// read again regardless of its age.
func (l *CertLoader) LoadIdentity(ctx context.Context) (*tls.Certificate, error) {
	return l.identity.get(ctx, l.files.CertificateFile, l.files.RefreshInterval, l.files.readIdentity, func(c *tls.Certificate) bool {
		return c == nil || c.Leaf == nil || time.Now().Before(c.Leaf.NotAfter)
	}, l.warn)
}

// loaded is the parsed contents of some files.
type loaded[T any] struct {
	reader files.Reader

	mu     sync.Mutex
	value  T         // of the last successful read
	at     time.Time // start of the last successful read; zero before the first
	warned time.Time // time of the last log line about a failure; zero after a successful read
}

const warnPause = 10 * time.Second // between two log lines about the same files

// get returns the value. It reads the value if it is older than interval or not valid.
func (l *loaded[T]) get(ctx context.Context, file string, interval time.Duration, read func() (T, error), valid func(T) bool, warn func(time.Time, error)) (T, error) {
	now := time.Now()
	l.mu.Lock()
	value, at := l.value, l.at
	l.mu.Unlock()
	if !at.IsZero() && now.Sub(at) < interval && valid(value) {
		return value, nil
	}
	if !at.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = files.Soon(ctx)
		defer cancel()
	}
	err := l.reader.Read(ctx, func() error { return l.read(now, read) })
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("xdslb: reading %s: %w", file, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && l.warned.IsZero():
	case err == nil:
		l.warned = time.Time{}
		warn(l.at, nil)
	case l.at.IsZero():
		return l.value, err
	case l.warned.IsZero() || now.Sub(l.warned) >= warnPause:
		l.warned = now
		warn(l.at, err)
	}
	return l.value, nil
}

// read reads the value for all callers of get.
func (l *loaded[T]) read(now time.Time, read func() (T, error)) error {
	value, err := read()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.value, l.at = value, now
	}
	return err
}

func (f CertFiles) readRoots() (roots Roots, err error) {
	if f.SPIFFEBundleMapFile != "" {
		text, err := readCerts(f.SPIFFEBundleMapFile)
		if err != nil {
			return roots, fmt.Errorf("xdslb: reading spiffe_trust_bundle_map_file: %w", err)
		}
		if roots.TrustDomains, err = parseBundleMap(text); err != nil {
			return roots, fmt.Errorf("xdslb: spiffe_trust_bundle_map_file %s: %w", f.SPIFFEBundleMapFile, err)
		}
		return roots, nil
	}
	if f.CACertificateFile == "" {
		return roots, nil
	}
	text, err := readCerts(f.CACertificateFile)
	if err != nil {
		return roots, fmt.Errorf("xdslb: reading ca_certificate_file: %w", err)
	}
	if err := whole(text); err != nil {
		return roots, fmt.Errorf("xdslb: ca_certificate_file %s: %w", f.CACertificateFile, err)
	}
	roots.Pool = x509.NewCertPool()
	if !roots.Pool.AppendCertsFromPEM(text) {
		return Roots{}, fmt.Errorf("xdslb: ca_certificate_file %s: no certificate in PEM format", f.CACertificateFile)
	}
	return roots, nil
}

// readIdentity returns an error without the contents of the files if the certificate and key
// cannot be used.
func (f CertFiles) readIdentity() (*tls.Certificate, error) {
	if f.CertificateFile == "" {
		return nil, nil
	}
	var key []byte
	var identity tls.Certificate
	chain, err := readCerts(f.CertificateFile)
	if err == nil {
		err = whole(chain)
	}
	if err == nil {
		key, err = readCerts(f.PrivateKeyFile)
	}
	if err == nil {
		identity, err = tls.X509KeyPair(chain, key)
	}
	if err != nil {
		return nil, fmt.Errorf("xdslb: reading certificate_file %s and private_key_file %s: %w", f.CertificateFile, f.PrivateKeyFile, err)
	}
	return &identity, nil
}

// maxCertFile is the maximum size of a file.
const maxCertFile = 16 << 20

// readCerts reads a file, without its byte order mark, which would hide the first PEM block.
func readCerts(name string) ([]byte, error) {
	text, err := files.Read(name, maxCertFile)
	return bytes.TrimPrefix(text, []byte("\ufeff")), err
}

// beginPEM matches the beginning of PEM blocks.
var beginPEM = regexp.MustCompile(`(?m)^-----BEGIN `)

// whole returns an error if a PEM block is incomplete, as in a file that is being written. Go's
// parsers skip such blocks.
func whole(text []byte) error {
	begins := beginPEM.FindAllIndex(text, -1)
	for i, begin := range begins {
		block := text[begin[0]:]
		if i+1 < len(begins) {
			block = text[begin[0]:begins[i+1][0]]
		}
		if parsed, _ := pem.Decode(block); parsed != nil {
			continue
		}
		line := 1 + bytes.Count(text[:begin[0]], []byte("\n"))
		if bytes.Contains(block[1:], []byte("-----BEGIN ")) {
			return fmt.Errorf("line %d: the PEM block is malformed: another one begins in it, possibly because a line break is missing", line)
		}
		return fmt.Errorf("line %d: the PEM block is malformed, or the file ends within it", line)
	}
	return nil
}

// Verify verifies a server's certificate chain, the server's own first. system selects the
// system's roots if there are no other roots; otherwise Verify then fails. It does not check the
// names in the certificate, except for the trust domain.
func (r Roots) Verify(chain []*x509.Certificate, system bool) error {
	if len(chain) == 0 {
		return errors.New("the server sent no certificate")
	}
	opts := x509.VerifyOptions{Roots: r.Pool, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if r.TrustDomains != nil {
		domain, err := trustDomain(chain[0])
		if err != nil {
			return fmt.Errorf("roots depend on the trust domain, and %w", err)
		}
		if opts.Roots = r.TrustDomains[domain]; opts.Roots == nil {
			return fmt.Errorf("there are no roots for trust domain %q", domain)
		}
	} else if r.Pool == nil && !system {
		return errors.New("there are no roots")
	}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(opts)
	return err
}
