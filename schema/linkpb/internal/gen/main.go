// Command gen compiles link.proto and writes the Go code for it. It needs Go
// and the module proxy only: protocompile reads the .proto, and the two plugins
// are tools of this module.
//
// It is run by go generate in schema/linkpb and writes the same bytes every
// time.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"
)

const source = "link.proto"

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func generate() error {
	c := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments
	}
	files, err := c.Compile(context.Background(), source)
	if err != nil {
		return err // names the place
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{source},
		Parameter:      proto.String("paths=source_relative"),
	}
	add(request, files[0])
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(plugin, request); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// add appends f to the request, after all that it imports, as plugins expect.
// The one import has no imports of its own.
func add(request *pluginpb.CodeGeneratorRequest, f protoreflect.FileDescriptor) {
	for i := range f.Imports().Len() {
		add(request, f.Imports().Get(i).FileDescriptor)
	}
	request.ProtoFile = append(request.ProtoFile, protodesc.ToFileDescriptorProto(f))
}

// run gives the request to a plugin and writes the files that it returns.
func run(plugin string, request *pluginpb.CodeGeneratorRequest) error {
	in, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.File {
		if err := os.WriteFile(f.GetName(), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
