package trial;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.services.sqs.SqsAsyncClient;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.batchmanager.SqsAsyncBatchManager;
import software.amazon.awssdk.services.sqs.model.*;

/**
 * The SQS front through the AWS SDK for Java v2, which checks the MD5s of bodies and attributes.
 *
 * <p>AWS_ENDPOINT_URL, AWS_REGION and the keys of a user come from the environment.
 */
public final class SqsTrial {
    private final SqsClient sqs;

    private SqsTrial(SqsClient sqs) {
        this.sqs = sqs;
    }

    public static void main(String[] arguments) throws Exception {
        try (SqsClient sqs = SqsClient.create()) {
            SqsTrial trial = new SqsTrial(sqs);
            trial.queues();
            trial.messages();
            trial.batches();
            trial.fifo();
            trial.deadLetters();
        }
        batchManager();
        System.out.println("all passed");
    }

    private void queues() {
        String name = "java-" + UUID.randomUUID();
        String url = sqs.createQueue(r -> r.queueName(name)
                .attributes(Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "7"))
                .tags(Map.of("team", "billing"))).queueUrl();
        check(sqs.getQueueUrl(r -> r.queueName(name)).queueUrl(), url);
        check(sqs.listQueues(r -> r.queueNamePrefix(name)).queueUrls(), List.of(url));
        List<String> paged = sqs.listQueuesPaginator(r -> r.queueNamePrefix(name).maxResults(1))
                .queueUrls().stream().toList();
        check(paged, List.of(url));
        sqs.tagQueue(r -> r.queueUrl(url).tags(Map.of("stage", "test")));
        sqs.untagQueue(r -> r.queueUrl(url).tagKeys("team"));
        check(sqs.listQueueTags(r -> r.queueUrl(url)).tags(), Map.of("stage", "test"));
        sqs.setQueueAttributes(r -> r.queueUrl(url)
                .attributes(Map.of(QueueAttributeName.DELAY_SECONDS, "1")));
        Map<QueueAttributeName, String> found = sqs.getQueueAttributes(r -> r.queueUrl(url)
                .attributeNames(QueueAttributeName.ALL)).attributes();
        check(found.get(QueueAttributeName.VISIBILITY_TIMEOUT), "7");
        check(found.get(QueueAttributeName.DELAY_SECONDS), "1");
        sqs.addPermission(r -> r.queueUrl(url).label("all").awsAccountIds("111122223333").actions("*"));
        sqs.removePermission(r -> r.queueUrl(url).label("all"));
        fails(QueueNameExistsException.class, () -> sqs.createQueue(r -> r.queueName(name)
                .attributes(Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "8"))));
        sqs.deleteQueue(r -> r.queueUrl(url));
        fails(QueueDoesNotExistException.class, () -> sqs.getQueueUrl(r -> r.queueName(name)));
    }

    private void messages() {
        String url = makeQueue(Map.of());
        SendMessageResponse sent = sqs.sendMessage(r -> r.queueUrl(url).messageBody("grüße")
                .messageAttributes(Map.of(
                        "text", MessageAttributeValue.builder().dataType("String").stringValue("ä").build(),
                        "blob", MessageAttributeValue.builder().dataType("Binary")
                                .binaryValue(SdkBytes.fromByteArray(new byte[] {0, -1})).build()))
                .messageSystemAttributes(Map.of(
                        MessageSystemAttributeNameForSends.AWS_TRACE_HEADER,
                        MessageSystemAttributeValue.builder().dataType("String")
                                .stringValue("Root=1-5759e988-bd862e3fe1be46a994272793").build())));
        Message message = receive(url, 1).get(0);
        check(message.body(), "grüße");
        check(message.messageId(), sent.messageId());
        check(message.messageAttributes().get("text").stringValue(), "ä");
        check(message.attributes().get(MessageSystemAttributeName.APPROXIMATE_RECEIVE_COUNT), "1");
        sqs.changeMessageVisibility(r -> r.queueUrl(url).receiptHandle(message.receiptHandle())
                .visibilityTimeout(0));
        Message again = receive(url, 1).get(0);
        sqs.deleteMessage(r -> r.queueUrl(url).receiptHandle(again.receiptHandle()));
        check(sqs.receiveMessage(r -> r.queueUrl(url)).messages(), List.of());
        fails(ReceiptHandleIsInvalidException.class,
                () -> sqs.deleteMessage(r -> r.queueUrl(url).receiptHandle("nothing")));
    }

    private void batches() {
        String url = makeQueue(Map.of());
        List<SendMessageBatchRequestEntry> entries = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            String text = Integer.toString(number);
            int delay = number == 3 ? 901 : 0;
            entries.add(SendMessageBatchRequestEntry.builder().id(text).messageBody(text)
                    .delaySeconds(delay).build());
        }
        SendMessageBatchResponse sent = sqs.sendMessageBatch(r -> r.queueUrl(url).entries(entries));
        check(sent.successful().size(), 9);
        check(sent.failed().get(0).id(), "3");
        List<Message> messages = receive(url, 9);
        ChangeMessageVisibilityBatchResponse changed = sqs.changeMessageVisibilityBatch(r -> r.queueUrl(url)
                .entries(messages.stream().map(m -> ChangeMessageVisibilityBatchRequestEntry.builder()
                        .id(m.messageId()).receiptHandle(m.receiptHandle()).visibilityTimeout(60)
                        .build()).toList()));
        check(changed.successful().size(), 9);
        DeleteMessageBatchResponse deleted = sqs.deleteMessageBatch(r -> r.queueUrl(url)
                .entries(messages.stream().map(m -> DeleteMessageBatchRequestEntry.builder()
                        .id(m.messageId()).receiptHandle(m.receiptHandle()).build()).toList()));
        check(deleted.successful().size(), 9);
        fails(EmptyBatchRequestException.class, () -> sqs.sendMessageBatch(r -> r.queueUrl(url).entries(List.of())));
        sqs.purgeQueue(r -> r.queueUrl(url));
    }

    private void fifo() {
        String url = sqs.createQueue(r -> r.queueName("java-" + UUID.randomUUID() + ".fifo")
                .attributes(Map.of(QueueAttributeName.FIFO_QUEUE, "true"))).queueUrl();
        SendMessageResponse first = sqs.sendMessage(r -> r.queueUrl(url).messageBody("1")
                .messageGroupId("g").messageDeduplicationId("1"));
        SendMessageResponse again = sqs.sendMessage(r -> r.queueUrl(url).messageBody("1")
                .messageGroupId("g").messageDeduplicationId("1"));
        check(again.messageId(), first.messageId());
        check(again.sequenceNumber(), first.sequenceNumber());
        sqs.sendMessage(r -> r.queueUrl(url).messageBody("2").messageGroupId("g").messageDeduplicationId("2"));
        check(receive(url, 2).stream().map(Message::body).toList(), List.of("1", "2"));
    }

    private void deadLetters() {
        String dead = makeQueue(Map.of());
        String deadArn = arnOf(dead);
        String source = makeQueue(Map.of(QueueAttributeName.REDRIVE_POLICY,
                "{\"deadLetterTargetArn\":\"" + deadArn + "\",\"maxReceiveCount\":\"1\"}"));
        check(sqs.listDeadLetterSourceQueues(r -> r.queueUrl(dead)).queueUrls(), List.of(source));
        sqs.sendMessage(r -> r.queueUrl(source).messageBody("x"));
        sqs.receiveMessage(r -> r.queueUrl(source).visibilityTimeout(0).waitTimeSeconds(5));
        check(sqs.receiveMessage(r -> r.queueUrl(source)).messages(), List.of());
        Message letter = sqs.receiveMessage(r -> r.queueUrl(dead).visibilityTimeout(0).waitTimeSeconds(5)
                .messageSystemAttributeNames(MessageSystemAttributeName.ALL)).messages().get(0);
        check(letter.attributes().get(MessageSystemAttributeName.DEAD_LETTER_QUEUE_SOURCE_ARN), arnOf(source));
        String handle = sqs.startMessageMoveTask(r -> r.sourceArn(deadArn)).taskHandle();
        check(receive(source, 1).get(0).body(), "x");
        String status;
        do {
            status = sqs.listMessageMoveTasks(r -> r.sourceArn(deadArn)).results().get(0).status();
        } while (status.equals("RUNNING"));
        check(status, "COMPLETED");
        fails(ResourceNotFoundException.class, () -> sqs.cancelMessageMoveTask(r -> r.taskHandle(handle)));
    }

    /** Gathers single calls into batches, and polls ahead. */
    private static void batchManager() throws Exception {
        try (SqsAsyncClient client = SqsAsyncClient.create();
                SqsAsyncBatchManager manager = client.batchManager()) {
            String url = client.createQueue(r -> r.queueName("java-" + UUID.randomUUID())).get().queueUrl();
            List<CompletableFuture<SendMessageResponse>> sending = new ArrayList<>();
            for (int number = 0; number < 100; number++) {
                String body = Integer.toString(number);
                sending.add(manager.sendMessage(r -> r.queueUrl(url).messageBody(body)));
            }
            CompletableFuture.allOf(sending.toArray(CompletableFuture[]::new)).get();
            Set<String> seen = new HashSet<>();
            long until = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (seen.size() < 100 && System.nanoTime() < until) {
                List<CompletableFuture<DeleteMessageResponse>> deleting = new ArrayList<>();
                for (Message message : manager.receiveMessage(r -> r.queueUrl(url)).get().messages()) {
                    seen.add(message.body());
                    deleting.add(manager.deleteMessage(r -> r.queueUrl(url)
                            .receiptHandle(message.receiptHandle())));
                }
                CompletableFuture.allOf(deleting.toArray(CompletableFuture[]::new)).get();
            }
            check(seen.size(), 100);
        }
    }

    private String makeQueue(Map<QueueAttributeName, String> attributes) {
        return sqs.createQueue(r -> r.queueName("java-" + UUID.randomUUID()).attributes(attributes)).queueUrl();
    }

    private String arnOf(String url) {
        return sqs.getQueueAttributes(r -> r.queueUrl(url).attributeNames(QueueAttributeName.QUEUE_ARN))
                .attributes().get(QueueAttributeName.QUEUE_ARN);
    }

    private List<Message> receive(String url, int count) {
        List<Message> found = new ArrayList<>();
        while (found.size() < count) {
            List<Message> some = sqs.receiveMessage(r -> r.queueUrl(url).maxNumberOfMessages(10)
                    .waitTimeSeconds(5).messageAttributeNames("All")
                    .messageSystemAttributeNames(MessageSystemAttributeName.ALL)).messages();
            if (some.isEmpty()) {
                throw new AssertionError(found.size() + " messages of " + count);
            }
            found.addAll(some);
        }
        return found;
    }

    private static void check(Object found, Object wanted) {
        if (!found.equals(wanted)) {
            throw new AssertionError("found " + found + ", not " + wanted);
        }
    }

    private static void fails(Class<? extends Exception> kind, Runnable act) {
        try {
            act.run();
        } catch (RuntimeException error) {
            if (kind.isInstance(error)) {
                return;
            }
            throw error;
        }
        throw new AssertionError("no " + kind.getSimpleName());
    }
}
