package image

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Why an image is not there. Each error of Ensure and EnsureArchive is one of these,
// or that of the context, or one of the machine's disk.
var (
	// ErrReference: what was asked for is no reference by digest.
	ErrReference = errors.New("not a reference by digest")
	// ErrUnavailable: no registry that may have it answers: down, refused, unknown
	// host, a 5xx status, or 429. See After.
	ErrUnavailable = errors.New("registry unavailable")
	// ErrSlow: the registry answers, and sends nothing for Config.Stall, or less
	// than Config.Floor for Config.Window.
	ErrSlow = errors.New("registry too slow")
	// ErrUnauthorized: the registry wants other credentials, or none were given (401, 403).
	ErrUnauthorized = errors.New("not authorized by the registry")
	// ErrNotFound: the registry has no such image, or not one of its blobs.
	ErrNotFound = errors.New("not in the registry")
	// ErrDigest: what the registry sent is not what its digest says.
	ErrDigest = errors.New("wrong digest")
	// ErrNoSpace: the disk is full, or the store has reached Config.MaxBytes.
	ErrNoSpace = errors.New("no space in the store of images")
	// ErrInvalid: the image breaks a rule of its format or a limit of the store.
	ErrInvalid = errors.New("invalid image or archive")
	// ErrPlatform: the image is not made for Config.Platform.
	ErrPlatform = errors.New("image not made for this platform")
	// ErrMediaType: the image has a form that the store does not read.
	ErrMediaType = errors.New("unsupported media type")
)

// failure is an error of one kind about one operand.
type failure struct {
	kind  error // a sentinel
	of    string
	why   error
	after time.Time // when to come back, if the registry said so
}

// Error implements error.
func (f *failure) Error() string { return fmt.Sprintf("%s: %v: %v", f.of, f.kind, f.why) }

// Unwrap returns the kind and the cause.
func (f *failure) Unwrap() []error { return []error{f.kind, f.why} }

// fail returns an error of a kind about an operand.
func fail(kind error, of, format string, args ...any) error {
	return &failure{kind: kind, of: of, why: fmt.Errorf(format, args...)}
}

// After returns when the registry that caused err asked to be asked again
// (Retry-After), which is in the future of when it did; ok is false if it did not say.
func After(err error) (at time.Time, ok bool) {
	var f *failure
	if !errors.As(err, &f) || f.after.IsZero() {
		return time.Time{}, false
	}
	return f.after, true
}

// disk adds to an error of the store's file system what it means.
func disk(of string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fail(ErrNoSpace, of, "%w", err)
	}
	return fmt.Errorf("%s: %w", of, err)
}

// elsewhere reports whether another host may have what one did not give.
func elsewhere(err error) bool {
	for _, kind := range []error{ErrUnavailable, ErrSlow, ErrUnauthorized, ErrNotFound, ErrDigest} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
