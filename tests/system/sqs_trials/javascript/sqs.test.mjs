// The SQS front through the AWS SDK for JavaScript v3, which checks the MD5s of messages itself.
//
// AWS_ENDPOINT_URL names the front; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are a user's.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import {
  AddPermissionCommand,
  CancelMessageMoveTaskCommand,
  ChangeMessageVisibilityBatchCommand,
  ChangeMessageVisibilityCommand,
  CreateQueueCommand,
  DeleteMessageBatchCommand,
  DeleteMessageCommand,
  DeleteQueueCommand,
  GetQueueAttributesCommand,
  GetQueueUrlCommand,
  ListDeadLetterSourceQueuesCommand,
  ListMessageMoveTasksCommand,
  ListQueueTagsCommand,
  ListQueuesCommand,
  PurgeQueueCommand,
  QueueDoesNotExist,
  QueueNameExists,
  ReceiveMessageCommand,
  RemovePermissionCommand,
  SendMessageBatchCommand,
  SendMessageCommand,
  SetQueueAttributesCommand,
  SQSClient,
  StartMessageMoveTaskCommand,
  TagQueueCommand,
  UntagQueueCommand,
  paginateListQueues,
} from '@aws-sdk/client-sqs';
import { Consumer } from 'sqs-consumer';

const sqs = new SQSClient({ region: 'us-east-1', maxAttempts: 1 });
const ask = (command) => sqs.send(command);

async function makeQueue(Attributes = {}, suffix = '') {
  const QueueName = `js-${randomUUID()}${suffix}`;
  const { QueueUrl } = await ask(new CreateQueueCommand({ QueueName, Attributes }));
  return { QueueName, QueueUrl };
}

const makeFifo = (attributes = {}) => makeQueue({ FifoQueue: 'true', ...attributes }, '.fifo');

async function arnOf(QueueUrl) {
  const AttributeNames = ['QueueArn'];
  const { Attributes } = await ask(new GetQueueAttributesCommand({ QueueUrl, AttributeNames }));
  return Attributes.QueueArn;
}

async function receive(QueueUrl, options = {}) {
  const all = { MessageSystemAttributeNames: ['All'], MessageAttributeNames: ['All'] };
  const wanted = { QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 5, ...all, ...options };
  return (await ask(new ReceiveMessageCommand(wanted))).Messages ?? [];
}

test('a queue is created, found, listed, tagged and deleted', async () => {
  const { QueueName, QueueUrl } = await makeQueue({ VisibilityTimeout: '7' });

  assert.equal((await ask(new GetQueueUrlCommand({ QueueName }))).QueueUrl, QueueUrl);
  const pages = paginateListQueues({ client: sqs, pageSize: 1 }, { QueueNamePrefix: QueueName });
  const listed = [];
  for await (const page of pages) listed.push(...(page.QueueUrls ?? []));
  assert.deepEqual(listed, [QueueUrl]);
  const byPrefix = await ask(new ListQueuesCommand({ QueueNamePrefix: QueueName }));
  assert.deepEqual(byPrefix.QueueUrls, [QueueUrl]);
  await ask(new TagQueueCommand({ QueueUrl, Tags: { team: 'billing', stage: 'test' } }));
  await ask(new UntagQueueCommand({ QueueUrl, TagKeys: ['team'] }));
  assert.deepEqual((await ask(new ListQueueTagsCommand({ QueueUrl }))).Tags, { stage: 'test' });
  await ask(new SetQueueAttributesCommand({ QueueUrl, Attributes: { DelaySeconds: '1' } }));
  const AttributeNames = ['All'];
  const { Attributes } = await ask(new GetQueueAttributesCommand({ QueueUrl, AttributeNames }));
  assert.equal(Attributes.VisibilityTimeout, '7');
  assert.equal(Attributes.DelaySeconds, '1');
  const other = new CreateQueueCommand({ QueueName, Attributes: { VisibilityTimeout: '8' } });
  await assert.rejects(ask(other), QueueNameExists);
  await ask(new DeleteQueueCommand({ QueueUrl }));
  await assert.rejects(ask(new GetQueueUrlCommand({ QueueName })), QueueDoesNotExist);
});

test('permissions are added and removed', async () => {
  const { QueueUrl } = await makeQueue();
  const permission = { QueueUrl, Label: 'all', AWSAccountIds: ['111122223333'], Actions: ['*'] };

  await ask(new AddPermissionCommand(permission));
  const AttributeNames = ['Policy'];
  const { Attributes } = await ask(new GetQueueAttributesCommand({ QueueUrl, AttributeNames }));
  assert.equal(JSON.parse(Attributes.Policy).Statement[0].Sid, 'all');
  await ask(new RemovePermissionCommand({ QueueUrl, Label: 'all' }));
});

test('a message with attributes is sent, received, hidden and deleted', async () => {
  const { QueueUrl } = await makeQueue();
  const MessageAttributes = {
    text: { DataType: 'String', StringValue: 'ä' },
    count: { DataType: 'Number', StringValue: '7' },
    blob: { DataType: 'Binary', BinaryValue: new Uint8Array([0, 255]) },
  };
  const MessageSystemAttributes = {
    AWSTraceHeader: { DataType: 'String', StringValue: 'Root=1-5759e988-bd862e3fe1be46a994272793' },
  };
  const sent = await ask(
    new SendMessageCommand({ QueueUrl, MessageBody: 'grüße', MessageAttributes, MessageSystemAttributes }),
  );

  const [message] = await receive(QueueUrl);
  assert.equal(message.Body, 'grüße');
  assert.equal(message.MessageId, sent.MessageId);
  assert.equal(message.MD5OfMessageAttributes, sent.MD5OfMessageAttributes);
  assert.equal(message.MessageAttributes.text.StringValue, 'ä');
  assert.deepEqual([...message.MessageAttributes.blob.BinaryValue], [0, 255]);
  assert.equal(message.Attributes.ApproximateReceiveCount, '1');
  assert.ok(message.Attributes.AWSTraceHeader.startsWith('Root='));
  const { ReceiptHandle } = message;
  await ask(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle, VisibilityTimeout: 0 }));
  const [again] = await receive(QueueUrl);
  assert.equal(again.Attributes.ApproximateReceiveCount, '2');
  await ask(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: again.ReceiptHandle }));
  assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), []);
});

test('batches report each entry', async () => {
  const { QueueUrl } = await makeQueue();
  const Entries = [...Array(10).keys()].map((n) => ({ Id: `${n}`, MessageBody: `${n}` }));
  Entries[3].DelaySeconds = 901;

  const sent = await ask(new SendMessageBatchCommand({ QueueUrl, Entries }));
  assert.equal(sent.Successful.length, 9);
  assert.deepEqual(sent.Failed.map(({ Id, SenderFault }) => [Id, SenderFault]), [['3', true]]);
  const messages = [];
  while (messages.length < 9) messages.push(...(await receive(QueueUrl)));
  const handles = messages.map(({ MessageId, ReceiptHandle }) => ({ Id: MessageId, ReceiptHandle }));
  const visible = handles.map((entry) => ({ ...entry, VisibilityTimeout: 60 }));
  const changed = await ask(new ChangeMessageVisibilityBatchCommand({ QueueUrl, Entries: visible }));
  assert.equal(changed.Successful.length, 9);
  const deleted = await ask(new DeleteMessageBatchCommand({ QueueUrl, Entries: handles }));
  assert.equal(deleted.Successful.length, 9);
  await ask(new SendMessageCommand({ QueueUrl, MessageBody: 'x' }));
  await ask(new PurgeQueueCommand({ QueueUrl }));
  assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), []);
});

test('a FIFO queue keeps groups in order and drops duplicates', async () => {
  const { QueueUrl } = await makeFifo({ ContentBasedDeduplication: 'true' });
  const send = (MessageBody, MessageGroupId) =>
    ask(new SendMessageCommand({ QueueUrl, MessageBody, MessageGroupId }));

  const first = await send('a1', 'a');
  const again = await send('a1', 'a');
  assert.equal(again.MessageId, first.MessageId);
  assert.equal(again.SequenceNumber, first.SequenceNumber);
  await send('a2', 'a');
  await send('b1', 'b');
  const messages = await receive(QueueUrl);
  const ofGroup = (group) =>
    messages.filter((m) => m.Attributes.MessageGroupId === group).map((m) => m.Body);
  assert.deepEqual(ofGroup('a'), ['a1', 'a2']);
  assert.deepEqual(ofGroup('b'), ['b1']);
});

test('dead letters are listed and moved back', async () => {
  const dead = await makeQueue();
  const deadArn = await arnOf(dead.QueueUrl);
  const RedrivePolicy = JSON.stringify({ deadLetterTargetArn: deadArn, maxReceiveCount: 1 });
  const source = await makeQueue({ RedrivePolicy });
  const sources = new ListDeadLetterSourceQueuesCommand({ QueueUrl: dead.QueueUrl });
  assert.deepEqual((await ask(sources)).queueUrls, [source.QueueUrl]);
  await ask(new SendMessageCommand({ QueueUrl: source.QueueUrl, MessageBody: 'x' }));
  assert.equal((await receive(source.QueueUrl, { VisibilityTimeout: 0 })).length, 1);
  assert.deepEqual(await receive(source.QueueUrl, { WaitTimeSeconds: 0 }), []);
  const [letter] = await receive(dead.QueueUrl, { VisibilityTimeout: 0 });
  assert.equal(letter.Attributes.DeadLetterQueueSourceArn, await arnOf(source.QueueUrl));

  const { TaskHandle } = await ask(new StartMessageMoveTaskCommand({ SourceArn: deadArn }));

  assert.ok(TaskHandle);
  const [back] = await receive(source.QueueUrl, { WaitTimeSeconds: 10 });
  assert.equal(back.Body, 'x');
  let task;
  do {
    const listed = await ask(new ListMessageMoveTasksCommand({ SourceArn: deadArn }));
    [task] = listed.Results;
  } while (task.Status === 'RUNNING');
  assert.equal(task.Status, 'COMPLETED');
  await assert.rejects(ask(new CancelMessageMoveTaskCommand({ TaskHandle })), { name: 'ResourceNotFoundException' });
});

test('a long poll that is aborted leaves nothing leased', async () => {
  const { QueueUrl } = await makeQueue();
  const controller = new AbortController();
  const poll = sqs.send(new ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 20 }), {
    abortSignal: controller.signal,
  });
  setTimeout(() => controller.abort(), 300);
  await assert.rejects(poll, { name: 'AbortError' });

  await ask(new SendMessageCommand({ QueueUrl, MessageBody: 'x' }));

  const [message] = await receive(QueueUrl, { WaitTimeSeconds: 2 });
  assert.equal(message?.Body, 'x');
});

test('sqs-consumer works off a queue', async () => {
  const { QueueUrl } = await makeQueue();
  for (let n = 0; n < 25; n += 1) {
    await ask(new SendMessageCommand({ QueueUrl, MessageBody: `${n}` }));
  }
  const seen = new Set();
  await new Promise((resolve, reject) => {
    const consumer = Consumer.create({
      queueUrl: QueueUrl,
      sqs,
      batchSize: 10,
      waitTimeSeconds: 1,
      handleMessage: async (message) => {
        seen.add(message.Body);
        if (seen.size === 25) consumer.stop();
        return message;
      },
    });
    consumer.on('error', reject);
    consumer.on('processing_error', reject);
    consumer.on('stopped', resolve);
    consumer.start();
  });

  assert.equal(seen.size, 25);
});
