package link

import (
	"fmt"
	"time"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/schema/linkpb"
)

// codec is that of gRPC, but for messages of agents with longer lists than are taken: they are refused
// before they are decoded.
type codec struct {
	encoding.CodecV2
	refusals refusals
}

func newCodec(r refusals) codec { return codec{encoding.GetCodecV2(grpcproto.Name), r} }

// Unmarshal decodes a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v.(type) {
	case *linkpb.AgentMessage, *linkpb.SourcesRequest:
	default:
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	err := linkpb.Unmarshal(whole.ReadOnlyData(), v.(proto.Message))
	if err != nil {
		c.refusals.Refused(refusedReport, fmt.Errorf("a message of an agent: %w", err), time.Now())
	}
	return err
}
