package link

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
	"github.com/musterhq/muster/schema/linkpb"
)

// Sources says from where the calling machine gets an image or a package.
func (g service) Sources(ctx context.Context, r *linkpb.SourcesRequest) (*linkpb.SourcesResponse, error) {
	s := g.server
	machine, err := s.callerOf(ctx, identity.Machine)
	if err != nil {
		return nil, s.refusals.caller(ctx, err)
	}
	q, err := linkpb.DecodeQuestion(r)
	switch {
	case err == nil && s.cfg.Sources == nil:
		return nil, status.Error(codes.Unimplemented, "this master does not say who has what")
	case err == nil:
		err = schema.CheckName(q.Machine)
	}
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if machine != "" && machine != q.Machine {
		return nil, s.refusals.caller(ctx, status.Errorf(codes.PermissionDenied, "the certificate is of machine %s, and the question of %s", machine, q.Machine))
	}
	a, err := s.cfg.Sources.Sources(ctx, q)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return linkpb.EncodeAnswer(&a), nil
}
