package store

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newZap returns a logger for etcd that writes warnings and errors to log. Where
// etcd would end the process, end is called with what it says last, and must not
// return.
func newZap(log *slog.Logger, end zapcore.CheckWriteHook) *zap.Logger {
	return zap.New(&slogCore{log: log}, zap.WithFatalHook(end), zap.WithPanicHook(end))
}

// slogCore is a zapcore.Core over slog.
type slogCore struct {
	log    *slog.Logger
	fields []zapcore.Field
}

// silenced are parts of warnings about what this server is meant to be, or
// about a start that goes well a moment later.
var silenced = []string{
	"Running http and grpc server on single port.",
	"stopped publish because server is stopping",
	"simple token is not cryptographically signed",
	// What a collapse says better a moment later.
	"writeAt failed, offset", "writing data failed", "Committing transaction failed",
	// Directories that are younger than the first snapshot of the log.
	"Failed to detect storage schema version.",
	// An election before the log is replayed; the next comes in a tenth of a
	// second.
	"pending configuration changes to apply",
}

// passing are parts of errors that etcd logs and that are over, or of no
// matter, a moment later.
var passing = []string{
	"missing term information",      // a new version directory has no raft term yet
	"etcdserver: request cancelled", // its own errands, when it is closed
	"etcdserver: server stopped",
	"etcdserver: too many requests", // from itself, while a long log is replayed
}

func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

func (c *slogCore) Enabled(l zapcore.Level) bool {
	// The cause of its end is in the error that the caller gets.
	return l >= zapcore.WarnLevel && l <= zapcore.ErrorLevel && c.log.Enabled(context.Background(), level(l))
}

func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{log: c.log, fields: append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) && !containsAny(e.Message, silenced) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range c.fields {
		f.AddTo(enc)
	}
	for _, f := range fields {
		f.AddTo(enc)
	}
	if text, ok := enc.Fields["error"].(string); ok && containsAny(text, passing) {
		return nil
	}
	args := make([]any, 0, 1)
	if len(enc.Fields) > 0 {
		args = append(args, slog.Any("etcd", enc.Fields))
	}
	c.log.Log(context.Background(), level(e.Level), fmt.Sprintf("etcd: %s", e.Message), args...)
	return nil
}

func (c *slogCore) Sync() error { return nil }

func level(l zapcore.Level) slog.Level {
	if l == zapcore.WarnLevel {
		return slog.LevelWarn
	}
	return slog.LevelError
}
