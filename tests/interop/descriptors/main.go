// Command descriptors prints the content of etcd's protobuf descriptors of its client API, one fact
// per line: services and their calls, messages and their fields, enums and their values. The output
// is kept in descriptors.txt, which a test compares with Quorate's own .proto files.
package main

import (
	"fmt"
	"sort"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var lines []string

func emit(format string, arguments ...any) {
	lines = append(lines, fmt.Sprintf(format, arguments...))
}

func main() {
	for _, file := range []protoreflect.FileDescriptor{
		etcdserverpb.File_rpc_proto,
		mvccpb.File_kv_proto,
		authpb.File_auth_proto,
		v3electionpb.File_v3election_proto,
		v3lockpb.File_v3lock_proto,
		grpc_health_v1.File_grpc_health_v1_health_proto,
	} {
		services(file.Services())
		messages(file.Messages())
		enums(file.Enums())
	}
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
}

func services(all protoreflect.ServiceDescriptors) {
	for i := range all.Len() {
		service := all.Get(i)
		for j := range service.Methods().Len() {
			call := service.Methods().Get(j)
			emit("rpc %s %s%s returns %s%s", call.FullName(),
				stream(call.IsStreamingClient()), call.Input().FullName(),
				stream(call.IsStreamingServer()), call.Output().FullName())
		}
	}
}

func stream(yes bool) string {
	if yes {
		return "stream "
	}
	return ""
}

func messages(all protoreflect.MessageDescriptors) {
	for i := range all.Len() {
		message := all.Get(i)
		emit("message %s", message.FullName())
		for j := range message.Fields().Len() {
			field := message.Fields().Get(j)
			oneof := ""
			if field.ContainingOneof() != nil {
				oneof = " in " + string(field.ContainingOneof().Name())
			}
			emit("field %s = %d %s %s%s", field.FullName(), field.Number(), field.Cardinality(), kind(field), oneof)
		}
		messages(message.Messages())
		enums(message.Enums())
	}
}

func kind(field protoreflect.FieldDescriptor) string {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return string(field.Message().FullName())
	case protoreflect.EnumKind:
		return string(field.Enum().FullName())
	}
	return field.Kind().String()
}

func enums(all protoreflect.EnumDescriptors) {
	for i := range all.Len() {
		enum := all.Get(i)
		for j := range enum.Values().Len() {
			value := enum.Values().Get(j)
			emit("enum %s: %s = %d", enum.FullName(), value.Name(), value.Number())
		}
	}
}
